package wire

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
)

// vector is a line of testdata/messages.golden.
type vector struct {
	line   int
	name   string
	fields map[string]string
	bytes  []byte
}

// vectors reads the file. Lines of buckets are for TestBuckets.
func vectors(t testing.TB) (all []vector) {
	t.Helper()
	f, err := os.Open("testdata/messages.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		left, right, found := strings.Cut(line, " = ")
		if !found {
			left, right, _ = strings.Cut(line, " ")
		}
		v := vector{line: n, name: strings.Fields(left)[0], fields: make(map[string]string)}
		for i, f := range strings.Fields(left)[1:] {
			key, value, ok := strings.Cut(f, "=")
			if !ok {
				key, value = strconv.Itoa(i), f
			}
			v.fields[key] = value
		}
		if v.name == "bucket" {
			v.fields["word"] = right
		} else if v.bytes, err = hex.DecodeString(strings.ReplaceAll(right, " ", "")); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		all = append(all, v)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// message returns what the fields of a vector say.
func (v vector) message(t testing.TB) (m Message) {
	t.Helper()
	m.Version = Versions.Oldest
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatalf("line %d: %v", v.line, err)
		}
		return n
	}
	for typ := Hello; typ <= Flow; typ++ {
		if strings.EqualFold(typ.String(), v.name) {
			m.Type = typ
		}
	}
	for key, value := range v.fields {
		switch key {
		case "id":
			m.ID = uint32(number(value))
		case "version":
			m.Version = uint8(number(value))
		case "program":
			m.Program = value
		case "interface":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatalf("line %d: %v", v.line, err)
			}
			m.setSocketWord(uint32(n))
		case "cookie":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				t.Fatalf("line %d: %v", v.line, err)
			}
			m.Cookie = n
		case "node":
			m.Node = uint16(number(value))
		case "features":
			m.Features = uint32(number(value))
		case "nonce":
			b, err := hex.DecodeString(value)
			if err != nil || copy(m.Nonce[:], b) != 16 {
				t.Fatalf("line %d: nonce", v.line)
			}
		case "client":
			m.Client = netip.MustParseAddrPort(value)
		case "server":
			m.Server = netip.MustParseAddrPort(value)
		case "reason":
			m.Reason = Reason(number(value))
		default:
			t.Fatalf("line %d: field %q", v.line, key)
		}
	}
	return m
}

func TestGolden(t *testing.T) {
	seen := make(map[Type]bool)
	for _, v := range vectors(t) {
		var got Message
		switch v.name {
		case "bucket":
			continue
		case "bad":
			if err := got.UnmarshalBinary(v.bytes); !errors.Is(err, ErrMessage) {
				t.Errorf("line %d: %+v, %v", v.line, got, err)
			}
			continue
		}
		want := v.message(t)
		seen[want.Type] = true
		if err := got.UnmarshalBinary(v.bytes); err != nil || got != want {
			t.Errorf("line %d: got %+v, %v, want %+v", v.line, got, err, want)
		}
		b, err := want.AppendBinary(nil)
		if err != nil || string(b) != string(v.bytes) {
			t.Errorf("line %d: got %x, %v, want %x", v.line, b, err, v.bytes)
		}
		if len(b) != want.Type.Len() || len(b) > MaxLen {
			t.Errorf("line %d: %d bytes, Len says %d", v.line, len(b), want.Type.Len())
		}
	}
	if len(seen) != int(Flow) {
		t.Errorf("%d types have vectors, of %d", len(seen), Flow)
	}
}

func TestBuckets(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		if v.name != "bucket" {
			continue
		}
		n++
		key := Key{Client: netip.MustParseAddrPort(v.fields["0"]), Server: netip.MustParseAddrPort(v.fields["1"])}
		if got := fmt.Sprint(key.Bucket()); got != v.fields["word"] {
			t.Errorf("line %d: got %s, want %s", v.line, got, v.fields["word"])
		}
	}
	if n == 0 {
		t.Error("no vectors")
	}
}

// TestCut cuts every message at every length, and has each be one byte too long.
func TestCut(t *testing.T) {
	for _, v := range vectors(t) {
		if v.name == "bucket" || v.name == "bad" {
			continue
		}
		before := Message{ID: 99}
		for n := range v.bytes {
			m := before
			if err := m.UnmarshalBinary(v.bytes[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || m != before {
				t.Errorf("%s cut to %d bytes: %+v, %v", v.name, n, m, err)
			}
		}
		m := before
		if err := m.UnmarshalBinary(append(v.bytes, 0)); !errors.Is(err, ErrMessage) || m != before {
			t.Errorf("%s with a byte more: %+v, %v", v.name, m, err)
		}
	}
}

func TestReservedBytesAreIgnored(t *testing.T) {
	b, _ := Message{Type: Welcome, ID: 1, Node: 5}.AppendBinary(nil)
	b[nodeOff+2], b[nodeOff+3] = 1, 2
	var m Message
	if err := m.UnmarshalBinary(b); err != nil || m.Node != 5 {
		t.Errorf("%+v, %v", m, err)
	}
}

func FuzzMessage(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Message
		if m.UnmarshalBinary(b) != nil {
			return
		}
		out, err := m.AppendBinary(nil)
		if err != nil || len(out) != len(b) {
			t.Fatalf("%+v becomes %d bytes of %d, %v", m, len(out), len(b), err)
		}
		if err := again.UnmarshalBinary(out); err != nil || again != m {
			t.Fatalf("%+v becomes %+v, %v", m, again, err)
		}
	})
}

func TestMessageDoesNotAlloc(t *testing.T) {
	buf := make([]byte, 0, MaxLen)
	m := Message{Type: Grant, Client: netip.MustParseAddrPort("10.2.0.1:1"), Server: netip.MustParseAddrPort("10.2.0.2:2")}
	var out Message
	if n := testing.AllocsPerRun(100, func() {
		b, _ := m.AppendBinary(buf)
		_ = out.UnmarshalBinary(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

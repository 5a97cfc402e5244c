package datagram

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return b
}

func TestGolden(t *testing.T) {
	file, err := os.Open("testdata/flow.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := map[string]int{}
	in := bufio.NewScanner(file)
	for line := 1; in.Scan(); line++ {
		left, right, _ := strings.Cut(in.Text(), " = ")
		words := strings.Fields(left)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		seen[words[0]]++
		fields := map[string]string{}
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				fields[k] = v
			}
		}
		number := func(name string) int {
			n, err := strconv.Atoi(fields[name])
			if err != nil {
				t.Fatalf("line %d: %v", line, err)
			}
			return n
		}
		switch words[0] {
		case "header":
			info := Info{Nonce: [16]byte(unhex(t, fields["nonce"])), From: netip.MustParseAddrPort(fields["from"]), To: netip.MustParseAddrPort(fields["to"])}
			s, err := Create(info, number("ring"))
			if err != nil {
				t.Fatalf("line %d: %v", line, err)
			}
			want := unhex(t, right)
			if got := s.Exposed()[:headLen]; string(got) != string(want) {
				t.Errorf("line %d:\n got %x\nwant %x", line, got, want)
			}
			d, err := Map(s.Fd())
			if err != nil || d.Info() != info {
				t.Fatalf("line %d: %+v, %v", line, d, err)
			}
			s.Retire()
			d.Retire()
		case "record":
			f := newFlow(t, minRing, 0)
			f.open(t)
			f.tx.told = f.tx.kernel  // no AFTER
			if number("each") != 0 { // a train, which this package neither sends nor takes
				copy(f.seg.Exposed()[ringOff:], unhex(t, right))
				if _, ok, err := f.rx.Next(); ok || !errors.Is(err, ErrCorrupt) {
					t.Errorf("line %d: a train is taken: %v, %v", line, ok, err)
				}
				continue
			}
			p := unhex(t, fields["payload"])
			m := Meta{TOS: uint8(number("tos")), TTL: uint8(number("ttl"))}
			if f.tx.Send(p, m) != Published {
				t.Fatalf("line %d: not published", line)
			}
			head := f.peer.Exposed()[ringOff : ringOff+recordHead]
			binary.LittleEndian.PutUint64(head[8:], uint64(number("stamp")))
			if string(head) != string(unhex(t, right)) {
				t.Errorf("line %d:\n got %x\nwant %s", line, head, right)
			}
			f.rx.lap = [2]uint64{} // so that any stamp may be
			rec, ok, err := f.rx.Next()
			if !ok || err != nil || rec.Meta != m || rec.Len != len(p) || rec.Stamp != uint64(number("stamp")) {
				t.Errorf("line %d: %+v, %v, %v", line, rec, ok, err)
			}
		case "bad":
			f := newFlow(t, minRing, 0)
			f.open(t)
			at, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			f.rx.at, f.rx.given = uint64(at), uint64(at)
			copy(f.seg.Exposed()[ringOff+at:], unhex(t, words[2]))
			if _, ok, err := f.rx.Next(); ok || !errors.Is(err, ErrCorrupt) || !f.rx.Ended() {
				t.Errorf("line %d: taken: %v, %v", line, ok, err)
			}
			if f.tx.Send(nil, Meta{}) != Gone {
				t.Errorf("line %d: the sender does not know", line)
			}
		default:
			t.Fatalf("line %d: %s", line, words[0])
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	if seen["header"] == 0 || seen["record"] == 0 || seen["bad"] == 0 {
		t.Error(seen)
	}
}

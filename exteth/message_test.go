package exteth

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"exnet/fabric/atu"
)

// goldenAdvert is an Advert with a different value in every field.
func goldenAdvert() Advert {
	return Advert{
		NLA:    0x0102030405060708,
		Length: 0x00345678,
		Offload: Offload{
			Flags: OffloadNeedsChecksum, GSOType: GSOTCPv4 | GSOECN,
			HdrLen: 0x1112, GSOSize: 0x2122, CsumStart: 0x3132, CsumOffset: 0x4142,
		},
		Class: 0x2a,
	}
}

// The layout of frame-format.md, section 5, one field a line.
var goldenAdvertBytes = strings.Join([]string{
	"0102030405060708", // NLA
	"00345678",         // length
	"01",               // flags
	"81",               // GSO type
	"1112",             // header length
	"2122",             // GSO size
	"3132",             // checksum start
	"4142",             // checksum offset
	"2a",               // class
	"00",               // reserved
}, "")

func TestAdvertGolden(t *testing.T) {
	b, err := goldenAdvert().AppendBinary([]byte{0xaa})
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != "aa"+goldenAdvertBytes {
		t.Errorf("encoded\n%s, want\n%s", got, "aa"+goldenAdvertBytes)
	}
	if len(b) != 1+AdvertLen {
		t.Errorf("%d bytes, want %d", len(b)-1, AdvertLen)
	}
	var a Advert
	if err := a.UnmarshalBinary(b[1:]); err != nil || a != goldenAdvert() {
		t.Errorf("decoded %+v, %v", a, err)
	}
}

func TestAdvertReservedBytes(t *testing.T) {
	b, _ := hex.DecodeString(goldenAdvertBytes)
	b[AdvertLen-2], b[AdvertLen-1] = 0xea, 0xff
	var a Advert
	if err := a.UnmarshalBinary(append(b, 1, 2, 3)); err != nil || a != goldenAdvert() {
		t.Errorf("reserved bytes are not ignored: %+v, %v", a, err)
	}
}

func TestAdvertCut(t *testing.T) {
	b, _ := hex.DecodeString(goldenAdvertBytes)
	for n := range AdvertLen {
		a := Advert{Length: 99}
		if err := a.UnmarshalBinary(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v, want ErrUnexpectedEOF", n, err)
		}
		if a != (Advert{Length: 99}) {
			t.Errorf("%d bytes: the advert was changed", n)
		}
	}
}

func TestAdvertLength(t *testing.T) {
	for _, tt := range []struct {
		length uint32
		ok     bool
	}{
		{0, false}, {13, false}, {14, true}, {MaxFrame, true}, {MaxFrame + 1, false}, {1<<32 - 1, false},
	} {
		a := Advert{Length: tt.length}
		b, err := a.AppendBinary(nil)
		if (err == nil) != tt.ok || !tt.ok && (!errors.Is(err, ErrAdvert) || len(b) != 0) {
			t.Errorf("encode length %d: %d bytes, %v", tt.length, len(b), err)
		}
		raw := make([]byte, AdvertLen)
		raw[8], raw[9], raw[10], raw[11] = byte(tt.length>>24), byte(tt.length>>16), byte(tt.length>>8), byte(tt.length)
		if err := a.UnmarshalBinary(raw); (err == nil) != tt.ok || !tt.ok && !errors.Is(err, ErrAdvert) {
			t.Errorf("decode length %d: %v", tt.length, err)
		}
	}
}

func TestAdvertString(t *testing.T) {
	a := Advert{NLA: atu.NLA(1)<<40 | 0x2032, Length: 1514}
	if got := a.String(); got != "advert 0:2+32@1 +1514" {
		t.Errorf("String() = %q", got)
	}
}

func FuzzAdvert(f *testing.F) {
	golden, _ := hex.DecodeString(goldenAdvertBytes)
	f.Add(golden)
	f.Add(golden[:AdvertLen-1])
	f.Add(make([]byte, AdvertLen))
	f.Fuzz(func(t *testing.T, in []byte) {
		var a Advert
		if a.UnmarshalBinary(in) != nil {
			return
		}
		out, err := a.AppendBinary(nil)
		if err != nil {
			t.Fatalf("%v was decoded but not encoded: %v", a, err)
		}
		if n := AdvertLen - 2; !bytes.Equal(out[:n], in[:n]) {
			t.Fatalf("%x became %x", in[:n], out[:n])
		}
		var again Advert
		if err := again.UnmarshalBinary(out); err != nil || again != a {
			t.Fatalf("%v became %v, %v", a, again, err)
		}
	})
}

// The three message types and the tag's bits are on the wire (section 3).
func TestEagerMessages(t *testing.T) {
	net := newNet(t, 1, Config{EagerThreshold: 8000})
	raw := net.addRaw()
	send := func(size int, off Offload) []message {
		buf := net.nodes[0].buf(t, size)
		plainUDP(buf.Packet())
		buf.Offload = off
		if err := net.nodes[0].Send(raw.id, buf); err != nil {
			t.Fatal(err)
		}
		return raw.receive()
	}
	csum := Offload{Flags: OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 6}
	for _, tt := range []struct {
		name string
		size int
		off  Offload
		want []string // type/tag/length
	}{
		{"one", 42, Offload{}, []string{"2/80/42"}},
		{"one, checksum", 120, csum, []string{"2/c0/120"}},
		{"two", 121, Offload{}, []string{"1/80/120", "2/01/1"}},
		{"four, checksum", 480, csum, []string{"1/c0/120", "1/41/120", "1/42/120", "2/43/120"}},
	} {
		var got []string
		for _, m := range send(tt.size, tt.off) {
			got = append(got, m.String())
		}
		if strings.Join(got, " ") != strings.Join(tt.want, " ") {
			t.Errorf("%s: messages %v, want %v", tt.name, got, tt.want)
		}
	}
	// The index counts modulo 64.
	got := send(65*120+1, Offload{})
	if len(got) != 66 || got[63].String() != "1/3f/120" || got[64].String() != "1/00/120" || got[65].String() != "2/01/1" {
		t.Errorf("66 messages: %v", got)
	}
}

package relay

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"

	"exnet/directsockets/segment"
	"exnet/fabric/velo"
)

// Every message comes out as it went in, fits into a VELO message, and is refused when it is
// cut anywhere or longer.
func TestMessages(t *testing.T) {
	o := open{id: 0x01020304, nla: 0x1122334455667788, size: segment.Config{Slots: 128, Ring: 1 << 20}, offer: 9,
		info: segment.Info{Nonce: [16]byte{1, 15: 2}, Client: clientAddr, Server: netip.MustParseAddrPort("[fd00::2]:443")}, key: 77}
	a := attached{id: 5, far: 0xffffffff, nla: 1 << 40, key: 1 << 31}
	sel := selection{id: 3, key: 1 << 30, number: 1 << 50, from: 9}
	b := back{1 << 50, 77}
	m := segment.Mark{Flags: segment.MarkFallenBack | segment.MarkStands | segment.MarkReset | 1<<7, Slot: 1 << 33, Off: 8 << 20}
	for _, c := range []struct {
		what  string
		bytes []byte
		parse func([]byte) (same bool, err error)
	}{
		{"open", o.append(nil), func(p []byte) (bool, error) { got, err := parseOpen(p); return got == o, err }},
		{"attached", a.append(nil), func(p []byte) (bool, error) { got, err := parseAttached(p); return got == a, err }},
		{"back", b.append(nil), func(p []byte) (bool, error) { got, err := parseBack(p); return got == b, err }},
		{"mark", appendMark(nil, m), func(p []byte) (bool, error) { got, err := parseMark(p); return got == m, err }},
		{"batch", batch{1, 2, 3, 4}.append(nil), func(p []byte) (bool, error) {
			got, err := parseBatch(p)
			return got == batch{1, 2, 3, 4}, err
		}},
		{"select", sel.append(nil), func(p []byte) (bool, error) { got, err := parseSelection(p); return got == sel, err }},
		{"hello", hello{newest, 5, 6, 7}.append(nil), func(p []byte) (bool, error) {
			got, err := parseHello(p)
			return got == hello{newest, 5, 6, 7}, err
		}},
		{"resume", resume{1, 2, 3, 4, 1 << 50, 6, 7, 1 << 41}.append(nil), func(p []byte) (bool, error) {
			got, err := parseResume(p)
			return got == resume{1, 2, 3, 4, 1 << 50, 6, 7, 1 << 41}, err
		}},
		{"taken", appendID(appendID(nil, 7), 8), func(p []byte) (bool, error) {
			i, n, err := parseTaken(p)
			return i == 7 && n == 8, err
		}},
		{"lend", appendNLA(nil, 1<<41), func(p []byte) (bool, error) { got, err := parseNLA(p); return got == 1<<41, err }},
		{"id", appendID(nil, 7), func(p []byte) (bool, error) { got, err := parseID(p); return got == 7, err }},
		{"answer", appendID(appendID(nil, 7), 8), func(p []byte) (bool, error) {
			id, n, err := parseAnswer(p)
			return id == 7 && n == 8, err
		}},
	} {
		if same, err := c.parse(c.bytes); !same || err != nil || len(c.bytes) > velo.MaxPayload {
			t.Errorf("%s of %d bytes: %v, %v", c.what, len(c.bytes), same, err)
		}
		for n := range c.bytes {
			if _, err := c.parse(c.bytes[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, errPeer) {
				t.Errorf("%s cut at %d: %v", c.what, n, err)
			}
		}
		if _, err := c.parse(append(c.bytes, 0)); !errors.Is(err, errPeer) {
			t.Errorf("%s with a byte more: %v", c.what, err)
		}
	}
}

// The bytes of a message, one field a line.
func TestGolden(t *testing.T) {
	o := open{id: 1, nla: 2, size: segment.Config{Slots: 16, Ring: 65536}, offer: 3,
		info: segment.Info{Nonce: [16]byte{4}, Client: clientAddr, Server: serverAddr}, key: 0x01020304}
	want := []byte{
		1, 0, 0, 0, // connection
		2, 0, 0, 0, 0, 0, 0, 0, // NLA
		16, 0, 0, 0, // slots
		0, 0, 1, 0, // ring
		3, 0, 0, 0, // offer
		4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // nonce
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2,
		0x40, 0x9c, 80, 0, // ports
		4, 3, 2, 1, // key
	}
	if got := o.append(nil); !bytes.Equal(got, want) {
		t.Errorf("OPEN\n%x\n%x", got, want)
	}
	if got, want := appendMark(nil, segment.Mark{Flags: segment.MarkFallenBack | segment.MarkClosed, Off: 5, Slot: 6}), []byte{12, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("MARK %x, not %x", got, want)
	}
}

package stream

import (
	"bytes"
	"testing"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/rma"
)

// Each kind of message with its bytes, a field a line.
var messages = []struct {
	m message
	b []byte
}{
	{message{kind: kindVELO, flow: 0x1234, word: 3 << 40, payload: []byte("abc")},
		[]byte{1, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 3, 0, 0, 'a', 'b', 'c'}},
	{message{kind: kindMailbox, flow: 7, n: 300}, []byte{2, 0, 7, 0, 0x2c, 1, 0, 0}},
	{message{kind: kindOpen, flow: 2, from: 3, to: 4}, []byte{3, 0, 2, 0, 3, 0, 4, 0}},
	{message{kind: kindReturn, flow: 2, word: 0x0102}, []byte{4, 0, 2, 0, 2, 1, 0, 0, 0, 0, 0, 0}},
	{message{kind: kindDown, flow: 0x0201}, []byte{5, 0, 1, 2}},
	{message{kind: kindGet, flags: flagNotify, op: 5, from: 3, to: 4, word: 0x0807060504030201, n: 496},
		[]byte{6, 1, 0, 0, 5, 0, 0, 0, 3, 0, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xf0, 1, 0, 0}},
	{message{kind: kindGetData, op: 5, off: chunkSize}, []byte{7, 0, 0, 0, 5, 0, 0, 0, 0, 0x10, 1, 0}},
	{message{kind: kindGetEnd, op: 5, status: fabric.StatusOverrun}, []byte{8, 5, 0, 0, 5, 0, 0, 0}},
	{message{kind: kindPutData, flags: flagImmediate, op: 5, from: 3, to: 4, word: 9, n: chunkSize + 1, off: chunkSize},
		[]byte{9, 2, 1, 0, 5, 0, 0, 0, 3, 0, 4, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0x10, 1, 0}},
	{message{kind: kindPutEnd, op: 5}, []byte{10, 0, 0, 0, 5, 0, 0, 0}},
	{message{kind: kindPing, word: 1}, []byte{11, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}},
	{message{kind: kindPong, word: 1}, []byte{12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}},
}

func equal(a, b message) bool {
	same := bytes.Equal(a.payload, b.payload)
	a.payload, b.payload = nil, nil
	return same && a.kind == b.kind && a.flags == b.flags && a.status == b.status && a.flow == b.flow &&
		a.from == b.from && a.to == b.to && a.op == b.op && a.n == b.n && a.off == b.off && a.word == b.word
}

func TestMessages(t *testing.T) {
	for _, tt := range messages {
		if got := tt.m.append(nil); !bytes.Equal(got, tt.b) {
			t.Errorf("kind %d: % x, want % x", tt.m.kind, got, tt.b)
		}
		for cut := range tt.b {
			var m message
			if n, err := m.decode(tt.b[:cut]); n != 0 || err != nil {
				t.Errorf("kind %d cut at %d: %d, %v", tt.m.kind, cut, n, err)
			}
		}
		var m message
		if n, err := m.decode(append(bytes.Clone(tt.b), 1, 2, 3)); n != len(tt.b) || err != nil || !equal(m, tt.m) {
			t.Errorf("kind %d: %d, %v, %+v", tt.m.kind, n, err, m)
		}
	}
	if len(messages) != int(kindEnd)-1 {
		t.Error("a kind is not tested")
	}
}

func TestMessagesRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"kind 0":               {0, 0, 0, 0},
		"kind unknown":         {byte(kindEnd), 0, 0, 0},
		"payload too long":     (&message{kind: kindVELO, word: (link.VELOPayload + 1) << 40}).append(nil),
		"VPID of a mailbox":    (&message{kind: kindMailbox, flow: fabric.VPIDs}).append(nil),
		"credits of a mailbox": (&message{kind: kindMailbox, n: maxCredits + 1}).append(nil),
		"VPID of a flow":       (&message{kind: kindOpen, from: 1, to: fabric.VPIDs}).append(nil),
		"GET of nothing":       (&message{kind: kindGet}).append(nil),
		"GET of too much":      (&message{kind: kindGet, n: rma.MaxTransfer + 1}).append(nil),
		"chunk that is none":   (&message{kind: kindGetData, off: 1}).append(nil),
		"chunk too far":        (&message{kind: kindGetData, off: maxChunks * chunkSize}).append(nil),
		"PUT of too much":      (&message{kind: kindPutData, n: rma.MaxTransfer + 1}).append(nil),
		"chunk behind the end": (&message{kind: kindPutData, n: chunkSize, off: chunkSize}).append(nil),
		"GET ended well":       (&message{kind: kindGetEnd}).append(nil),
		"PUT ended somehow":    (&message{kind: kindPutEnd, status: 99}).append(nil),
	} {
		var m message
		if n, err := m.decode(b); err == nil {
			t.Errorf("%s: %d, %+v", name, n, m)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, tt := range messages {
		f.Add(tt.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again message
		n, err := m.decode(b)
		if err != nil || n == 0 {
			return
		}
		if n > len(b) {
			t.Fatalf("%d bytes of %d", n, len(b))
		}
		enc := m.append(nil)
		if k, err := again.decode(enc); k != len(enc) || err != nil || !equal(m, again) {
			t.Fatalf("%+v becomes %+v, %v", m, again, err)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := hello{version: Version, node: 1, peer: 2, index: 3, conns: 4, boxes: 5, session: 6}
	f.Add(h.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < helloLen {
			return
		}
		var h, again hello
		if h.decode((*[helloLen]byte)(b)) != nil {
			return
		}
		if err := again.decode((*[helloLen]byte)(h.append(nil))); err != nil || again != h {
			t.Fatalf("%+v becomes %+v, %v", h, again, err)
		}
	})
}

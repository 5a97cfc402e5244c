package shm

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"exnet/fabric"
	"exnet/internal/shm"
)

func TestLayout(t *testing.T) {
	if segmentSize%shm.PageSize != 0 || ringOff%shm.SlotSize != 0 || segmentSize != 245760 {
		t.Errorf("segment of %d bytes, ring at %d", segmentSize, ringOff)
	}
	at := 0
	for _, f := range []struct{ off, size int }{
		{headOff, 8}, {eventsOff, 8}, {spaceOff, 8}, {armedOff, 8}, {boxOff, 8 * fabric.VPIDs},
		{ackOff, 8 * MaxFlows}, {wantOff, 8 * MaxFlows}, {loanOff, 8 * loanWords * Loans}, {readOff, 8 * Loans},
		{ringOff, RingSlots * shm.SlotSize},
	} {
		if f.off < at || f.off%8 != 0 {
			t.Errorf("field at %d begins before %d, or is not aligned", f.off, at)
		}
		at = f.off + f.size
	}
	if at != segmentSize {
		t.Errorf("fields end at %d of %d", at, segmentSize)
	}
}

func TestHelloCodec(t *testing.T) {
	h := hello{version: 1, node: 0x0203, features: 0, segment: 0x3c000, arena: 0x10000000}
	b, err := h.AppendBinary(nil)
	golden := []byte{
		'e', 'x', 'n', 'e', 't', 's', 'h', 'm', // magic
		1, 0, 0, 0, // version
		3, 2, // node
		0, 0, // features
		0, 0xc0, 3, 0, 0, 0, 0, 0, // segment
		0, 0, 0, 0x10, 0, 0, 0, 0, // arena
	}
	if err != nil || !bytes.Equal(b, golden) {
		t.Fatalf("% x, %v", b, err)
	}
	var got hello
	if err := got.UnmarshalBinary(b); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range b {
		g := hello{version: 9}
		if err := g.UnmarshalBinary(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, ErrHello) || g.version != 9 {
			t.Errorf("%d bytes: %v, %+v", n, err, g)
		}
	}
	b[0] = 'E'
	if err := got.UnmarshalBinary(b); !errors.Is(err, ErrHello) {
		t.Errorf("other magic: %v", err)
	}
}

func TestMessageCodec(t *testing.T) {
	m := message{
		kind: kindPut, id: 0x0102, from: 3, to: 4, flags: flagNotify | flagInline, status: fabric.StatusDevice,
		n: 5, remote: 0x0807060504030201, place: 0x1817161514131211,
	}
	copy(m.inline[:], "hello")
	var b [msgLen]byte
	m.put(&b)
	golden := []byte{
		2, 1, // number
		3, 0, // from
		4, 0, // to
		5,          // flags
		3,          // status
		5, 0, 0, 0, // length
		0, 0, 0, 0,
		1, 2, 3, 4, 5, 6, 7, 8, // remote
		0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, // place
		'h', 'e', 'l', 'l', 'o',
	}
	if !bytes.Equal(b[:len(golden)], golden) {
		t.Errorf("% x", b[:len(golden)])
	}
	var got message
	got.get(kindPut, &b)
	if got != m {
		t.Errorf("%+v, want %+v", got, m)
	}
}

// Every encoding of a message decodes, and what was decoded is encoded alike.
func FuzzMessage(f *testing.F) {
	f.Add(uint16(kindGet), make([]byte, msgLen))
	f.Fuzz(func(t *testing.T, k uint16, in []byte) {
		var b, out [msgLen]byte
		copy(b[:], in)
		var m, again message
		m.get(kind(k), &b)
		if m.flags&flagInline != 0 && m.n > maxInline { // refused before it is used
			return
		}
		m.put(&out)
		again.get(kind(k), &out)
		if m.flags&flagInline != 0 {
			clear(m.inline[m.n:]) // not sent
		}
		if again != m {
			t.Errorf("%+v, %+v", again, m)
		}
	})
}

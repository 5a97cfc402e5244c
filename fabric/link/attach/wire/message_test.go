package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"exnet/fabric"
)

func TestMessage(t *testing.T) {
	m := Message{
		Op: OpConnect, Status: StatusDenied, Number: 0x01020304, Addr: Addr{Node: 0x1122, VPID: 0x33}, Unit: fabric.UnitRMA,
		A: 1, B: 2, C: 3, D: 0xff00000000000000,
	}
	want := []byte{
		2, 0, // operation
		3, 0, // status
		4, 3, 2, 1, // number
		0x22, 0x11, // node
		0x33, 0, // VPID
		2, 0, // unit
		0, 0, // reserved
		1, 0, 0, 0, 0, 0, 0, 0, // A
		2, 0, 0, 0, 0, 0, 0, 0, // B
		3, 0, 0, 0, 0, 0, 0, 0, // C
		0, 0, 0, 0, 0, 0, 0, 0xff, // D
	}
	b, err := m.AppendBinary(nil)
	if err != nil || !bytes.Equal(b, want) {
		t.Fatalf("%x, %v", b, err)
	}
	var got Message
	for n := range b {
		if err := got.UnmarshalBinary(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || got != (Message{}) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := got.UnmarshalBinary(b); err != nil || got != m {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, wrong := range [][]byte{append(b, 0), append([]byte{0, 0}, b[2:]...), append(append(b[:12:12], 3), b[13:]...)} {
		if err := got.UnmarshalBinary(wrong); !errors.Is(err, ErrMessage) {
			t.Errorf("%x: %v", wrong, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	b, _ := Message{Op: OpOpen, Unit: fabric.UnitVELO, A: Version}.AppendBinary(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Message
		if m.UnmarshalBinary(b) != nil {
			return
		}
		c, _ := m.AppendBinary(nil)
		if err := again.UnmarshalBinary(c); err != nil || again != m {
			t.Fatalf("%+v, %+v: %v", m, again, err)
		}
	})
}

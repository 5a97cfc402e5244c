package wire

import (
	"errors"
	"io"
	"testing"
)

func TestMessage(t *testing.T) {
	m := Message{Op: OpLend, Status: StatusHuge, Number: 0x01020304, Node: 0x0506, Flags: FlagHuge, Account: 0x0708090a, A: 1, B: 2, C: 3, D: 4, E: 5, F: 0x1122334455667788}
	golden := []byte{
		34, 0, // operation
		7, 0, // status
		4, 3, 2, 1, // number
		6, 5, // node
		2, 0, // flags
		0x0a, 9, 8, 7, // account
		1, 0, 0, 0, 0, 0, 0, 0,
		2, 0, 0, 0, 0, 0, 0, 0,
		3, 0, 0, 0, 0, 0, 0, 0,
		4, 0, 0, 0, 0, 0, 0, 0,
		5, 0, 0, 0, 0, 0, 0, 0,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
	}
	b, err := m.AppendBinary(nil)
	if err != nil || string(b) != string(golden) || len(b) != MessageSize {
		t.Fatalf("%v, %v", b, err)
	}
	for n := range b {
		got := Message{A: 9}
		if err := got.UnmarshalBinary(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || got != (Message{A: 9}) {
			t.Errorf("%d bytes: %v, %+v", n, err, got)
		}
	}
	var got Message
	if err := got.UnmarshalBinary(b); err != nil || got != m {
		t.Errorf("%+v, %v", got, err)
	}
	for _, at := range []int{0, 3} { // no operation; a status that there is not
		c := append([]byte(nil), b...)
		c[at] ^= 34
		if err := got.UnmarshalBinary(c); !errors.Is(err, ErrMessage) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(make([]byte, MessageSize))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		if m.UnmarshalBinary(b) != nil {
			return
		}
		again, _ := m.AppendBinary(nil)
		if string(again) != string(b[:MessageSize]) {
			t.Errorf("%v became %v", b, again)
		}
	})
}

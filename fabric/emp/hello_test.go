package emp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestHelloGolden(t *testing.T) {
	h := hello{Version: 0x0102, Node: 0x0304, Token: 0x1122334455667788, Refused: "no"}
	want := []byte{
		'E', 'X', 'N', 'E', // magic
		0x02, 0x01, // version
		0x01, 0x00, // status: refused
		0x04, 0x03, // node
		0x00, 0x00, // zero
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // token
		'n', 'o', // reason
	}
	got, err := h.AppendBinary(nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("% x, %v\nwant % x", got, err, want)
	}
	var back hello
	if err := back.UnmarshalBinary(want); err != nil || back != h {
		t.Errorf("%+v, %v", back, err)
	}
	for n := range helloLen {
		if err := back.UnmarshalBinary(want[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, ErrHello) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestHelloRefused(t *testing.T) {
	good, _ := hello{Version: 1}.AppendBinary(nil)
	for name, change := range map[string]func([]byte) []byte{
		"magic":              func(b []byte) []byte { b[helloMagicOff] = 'e'; return b },
		"status":             func(b []byte) []byte { b[helloStatusOff] = 2; return b },
		"no reason":          func(b []byte) []byte { b[helloStatusOff] = 1; return b },
		"reason without one": func(b []byte) []byte { return append(b, 'x') },
		"long": func(b []byte) []byte {
			b[helloStatusOff] = 1
			return append(b, strings.Repeat("x", maxReason+1)...)
		},
	} {
		h := hello{Node: 5}
		if err := h.UnmarshalBinary(change(bytes.Clone(good))); !errors.Is(err, ErrHello) || h.Node != 5 {
			t.Errorf("%s: %v, %+v", name, err, h)
		}
	}
	// A long reason is cut.
	b, _ := hello{Refused: strings.Repeat("x", 1000)}.AppendBinary(nil)
	var h hello
	if err := h.UnmarshalBinary(b); err != nil || len(h.Refused) != maxReason {
		t.Errorf("%d, %v", len(h.Refused), err)
	}
}

func FuzzHello(f *testing.F) {
	for _, h := range []hello{{Version: 1, Node: 2, Token: 3}, {Version: 1, Refused: "why"}} {
		b, _ := h.AppendBinary(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again hello
		if h.UnmarshalBinary(b) != nil {
			return
		}
		enc, err := h.AppendBinary(nil)
		if err != nil || len(enc) != len(b) {
			t.Fatalf("% x became % x, %v", b, enc, err)
		}
		if err := again.UnmarshalBinary(enc); err != nil || again != h {
			t.Fatalf("%+v, %v; want %+v", again, err, h)
		}
	})
}

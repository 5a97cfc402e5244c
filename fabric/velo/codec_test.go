package velo

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"exnet/fabric"
)

func TestDescriptorGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    Descriptor
		n    int
		want []byte
	}{
		{
			"unicast",
			Descriptor{Dst: 0xA1B2, VPID: 0xC3, Tag: 0xD4, Type: 5, Class: 0x2E},
			120,
			[]byte{
				0xB2, 0xA1, // destination node
				0xC3, 0x00, // VPID 10, reserved 5, MC 1
				0x25,       // MTT 4, upper 2 of the class, reserved 2
				0xD4,       // user tag
				0x78, 0xE0, // length 12, lower 4 of the class
			},
		},
		{
			"multicast",
			Descriptor{Group: 63, Multicast: true, VPID: 1},
			1,
			[]byte{
				0x3F, 0x00, // group
				0x01, 0x80, // VPID 10, reserved 5, MC 1
				0x00,       // MTT 4, reserved 4
				0x00,       // user tag
				0x01, 0x00, // length 12, reserved 4
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := tt.d.AppendBinary([]byte{0xFF}, tt.n)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b[1:], tt.want) {
				t.Fatalf("encoded % x, want % x", b[1:], tt.want)
			}
			for cut := range len(tt.want) {
				var d Descriptor
				if _, err := d.UnmarshalBinary(tt.want[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("cut to %d bytes: %v", cut, err)
				}
			}
			var d Descriptor
			n, err := d.UnmarshalBinary(tt.want)
			if err != nil || n != tt.n || d != tt.d {
				t.Errorf("decoded %+v, %d bytes, %v", d, n, err)
			}
		})
	}
}

func TestDescriptorIsChecked(t *testing.T) {
	good := Descriptor{Dst: 1, VPID: 255, Type: 15}
	for _, tt := range []struct {
		name string
		d    Descriptor
		n    int
	}{
		{"empty", good, 0},
		{"too long", good, 121},
		{"VPID", Descriptor{VPID: 256}, 1},
		{"type", Descriptor{Type: 16}, 1},
		{"class", Descriptor{Class: 64}, 1},
		{"group", Descriptor{Multicast: true, Group: 64}, 1},
	} {
		if b, err := tt.d.AppendBinary(nil, tt.n); !errors.Is(err, fabric.ErrInvalid) || len(b) != 0 {
			t.Errorf("%s: % x, %v", tt.name, b, err)
		}
	}
	if _, err := good.AppendBinary(nil, 120); err != nil {
		t.Error(err)
	}
	var d Descriptor
	if _, err := d.UnmarshalBinary([]byte{64, 0, 1, 0x80, 0, 0, 1, 0}); !errors.Is(err, fabric.ErrInvalid) || d != (Descriptor{}) {
		t.Errorf("group 64: %+v, %v", d, err)
	}
	if _, err := d.UnmarshalBinary([]byte{1, 0, 1, 0x7C, 0xF0, 0, 1, 0xF0}); err != nil {
		t.Errorf("reserved bits are not ignored: %v", err)
	}
}

func FuzzDescriptor(f *testing.F) {
	f.Add([]byte{0xB2, 0xA1, 0xC3, 0, 5, 0xD4, 0x78, 0})
	f.Add([]byte{0x3F, 0, 1, 0x80, 0, 0, 1, 0})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d, again Descriptor
		n, err := d.UnmarshalBinary(b)
		if err != nil {
			if d != (Descriptor{}) {
				t.Fatal("changed on error")
			}
			return
		}
		e, err := d.AppendBinary(nil, n)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := again.UnmarshalBinary(e); err != nil || m != n || again != d {
			t.Fatalf("%+v became %+v, %v", d, again, err)
		}
	})
}

var goldenStatus = []byte{
	0xB2, 0xA1, // source node
	0x85, 0x94, // source VPID 10, MTT 4, reserved 1, MC 1
	0xD4,       // user tag
	0xF8,       // length 7, flow 1
	0x19, 0x09, // flow 15, phase 1
}

func TestStatusGolden(t *testing.T) {
	s := Status{Src: 0xA1B2, SrcVPID: 0x85, Flow: 0x1233, Len: 120, Tag: 0xD4, Type: 5, Multicast: true}
	b, err := s.AppendBinary([]byte{0xFF})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b[1:], goldenStatus) {
		t.Fatalf("encoded % x, want % x", b[1:], goldenStatus)
	}
	for cut := range len(goldenStatus) {
		var d Status
		if err := d.UnmarshalBinary(goldenStatus[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
	var d Status
	if err := d.UnmarshalBinary(goldenStatus); err != nil || d != s {
		t.Errorf("decoded %+v, %v", d, err)
	}
	phase := bytes.Clone(goldenStatus)
	phase[7] |= 0x80 // phase
	phase[3] |= 0x40 // reserved
	if err := d.UnmarshalBinary(phase); err != nil || d != s {
		t.Errorf("phase and reserved bit are not ignored: %+v, %v", d, err)
	}
}

// Links look at status words.
func TestWord(t *testing.T) {
	for _, s := range []Status{{}, {Len: 120}, {Len: 1, Multicast: true}, {Src: 65535, SrcVPID: 255, Flow: 65535, Len: 77, Tag: 255, Type: 15}} {
		if w := s.word() | phaseBit; WordLen(w) != int(s.Len) || WordMulticast(w) != s.Multicast {
			t.Errorf("%+v: length %d, multicast %v", s, WordLen(w), WordMulticast(w))
		}
	}
}

func TestStatusIsChecked(t *testing.T) {
	for _, s := range []Status{
		{Len: 0},
		{Len: 121},
		{Len: 1, SrcVPID: 256},
		{Len: 1, Type: 16},
	} {
		if b, err := s.AppendBinary(nil); !errors.Is(err, fabric.ErrInvalid) || len(b) != 0 {
			t.Errorf("%+v: % x, %v", s, b, err)
		}
	}
	var d Status
	for _, b := range [][]byte{
		{0, 0, 0, 0, 0, 0, 0, 0},
		{0, 0, 0, 0, 0, 121, 0, 0},
		{0, 0, 0, 1, 0, 1, 0, 0}, // VPID 256
	} {
		if err := d.UnmarshalBinary(b); !errors.Is(err, fabric.ErrInvalid) || d != (Status{}) {
			t.Errorf("% x: %+v, %v", b, d, err)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add(goldenStatus)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Status
		if s.UnmarshalBinary(b) != nil {
			return
		}
		e, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalBinary(e); err != nil || again != s {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func TestCodecsDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	d := Descriptor{Dst: 1, VPID: 1}
	s := Status{Len: 1}
	if n := testing.AllocsPerRun(100, func() {
		b, _ := d.AppendBinary(buf, 7)
		_, _ = d.UnmarshalBinary(b)
		b, _ = s.AppendBinary(buf)
		_ = s.UnmarshalBinary(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A flow's fields are grouped by who writes them, one cache line each.
func TestFlowLayout(t *testing.T) {
	const line = 64
	if n := sizeof[outflow](); n != 3*line {
		t.Errorf("outflow has %d bytes, want %d", n, 3*line)
	}
	if n := sizeof[inflow](); n != 2*line {
		t.Errorf("inflow has %d bytes, want %d", n, 2*line)
	}
	if n := sizeof[slot](); n != SlotSize {
		t.Errorf("slot has %d bytes, want %d", n, SlotSize)
	}
}

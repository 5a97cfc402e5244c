package atu

import (
	"errors"
	"io"
	"testing"

	"exnet/fabric"
	"exnet/foreign"
)

const (
	self  = fabric.NodeID(1)
	peer  = fabric.NodeID(2)
	other = fabric.NodeID(3)
	vpid  = fabric.VPID(5)
)

func register(tb testing.TB, t *ATU, size int, a Access) *Region {
	tb.Helper()
	r, err := t.Register(vpid, make([]byte, size), a)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

type nullDevice struct{}

func (nullDevice) WriteAt(p foreign.Memory, _ int64) (int, error) { return p.Len(), nil }

func TestRegisterChecksArguments(t *testing.T) {
	u := New(self)
	for _, tt := range []struct {
		name string
		vpid fabric.VPID
		size int
		a    Access
	}{
		{"vpid", 256, 10, Read},
		{"no access", vpid, 10, 0},
		{"unknown access", vpid, 10, 4},
		{"empty", vpid, 0, Read},
	} {
		if _, err := u.Register(tt.vpid, make([]byte, tt.size), tt.a); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := u.RegisterDevice(vpid, nil, 10, Write); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("nil device: %v", err)
	}
	if _, err := u.RegisterDevice(vpid, nullDevice{}, 10, Read|Write); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("device that can be read: %v", err)
	}
	if _, err := u.RegisterDevice(vpid, nullDevice{}, MaxRegion+1, Write); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("device larger than a GAT: %v", err)
	}
	if n := u.Stats().Regions; n != 0 {
		t.Errorf("%d regions registered", n)
	}
}

// Each check of Translate, its error and its counter.
func TestTranslateRefusals(t *testing.T) {
	const size = 3*PageSize + 100
	for _, tt := range []struct {
		name   string
		change func(u *ATU, r *Region, nla *NLA, n *int, v *fabric.VPID, from *fabric.NodeID, a *Access)
		want   error
		count  func(Stats) uint64
	}{
		{"unmapped GAT", func(_ *ATU, _ *Region, nla *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*nla += 1 << gatShift
		}, ErrUnmapped, func(s Stats) uint64 { return s.Unmapped }},
		{"unmapped block", func(_ *ATU, _ *Region, nla *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*nla += 5 * leafPages * PageSize
		}, ErrUnmapped, func(s Stats) uint64 { return s.Unmapped }},
		{"unmapped page", func(_ *ATU, _ *Region, nla *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*nla += 4 * PageSize
		}, ErrUnmapped, func(s Stats) uint64 { return s.Unmapped }},
		{"closed region", func(_ *ATU, r *Region, _ *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			_ = r.Close()
		}, ErrUnmapped, func(s Stats) uint64 { return s.Unmapped }},
		{"one byte too many", func(_ *ATU, _ *Region, _ *NLA, n *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*n = size + 1
		}, ErrBounds, func(s Stats) uint64 { return s.Bounds }},
		{"end of region", func(_ *ATU, _ *Region, nla *NLA, n *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*nla += size - 1
			*n = 2
		}, ErrBounds, func(s Stats) uint64 { return s.Bounds }},
		{"behind the end, in the last page", func(_ *ATU, _ *Region, nla *NLA, n *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*nla += size + 1
			*n = 1
		}, ErrBounds, func(s Stats) uint64 { return s.Bounds }},
		{"no bytes", func(_ *ATU, _ *Region, _ *NLA, n *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*n = 0
		}, ErrBounds, func(s Stats) uint64 { return s.Bounds }},
		{"negative", func(_ *ATU, _ *Region, _ *NLA, n *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*n = -1
		}, ErrBounds, func(s Stats) uint64 { return s.Bounds }},
		{"vpid", func(_ *ATU, _ *Region, _ *NLA, _ *int, v *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*v++
		}, ErrVPID, func(s Stats) uint64 { return s.VPID }},
		{"write", func(_ *ATU, _ *Region, _ *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, a *Access) {
			*a = Write
		}, ErrAccess, func(s Stats) uint64 { return s.Access }},
		{"generation", func(_ *ATU, _ *Region, nla *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			*nla += 1 << genShift
		}, ErrGeneration, func(s Stats) uint64 { return s.Generation }},
		{"lent again", func(_ *ATU, r *Region, _ *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			_, _ = r.Lend(peer)
		}, ErrGeneration, func(s Stats) uint64 { return s.Generation }},
		{"other node", func(_ *ATU, _ *Region, _ *NLA, _ *int, _ *fabric.VPID, from *fabric.NodeID, _ *Access) {
			*from = other
		}, ErrNode, func(s Stats) uint64 { return s.Node }},
		{"revoked", func(_ *ATU, r *Region, _ *NLA, _ *int, _ *fabric.VPID, _ *fabric.NodeID, _ *Access) {
			r.Revoke()
		}, ErrNode, func(s Stats) uint64 { return s.Node }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := New(self)
			r := register(t, u, size, Read)
			nla, err := r.Lend(peer)
			if err != nil {
				t.Fatal(err)
			}
			w, err := u.Translate(nla, size, vpid, peer, Read)
			if err != nil {
				t.Fatalf("the unchanged access: %v", err)
			}
			w.Release()
			n, v, from, a := size, vpid, peer, Read
			tt.change(u, r, &nla, &n, &v, &from, &a)
			_, err = u.Translate(nla, n, v, from, a)
			if !errors.Is(err, tt.want) || !errors.Is(err, fabric.ErrProtection) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			s := u.Stats()
			if tt.count(s) != 1 || s.Unmapped+s.Bounds+s.VPID+s.Access+s.Generation+s.Node != 1 {
				t.Errorf("counters %+v", s)
			}
		})
	}
}

func TestWindowIsExact(t *testing.T) {
	u := New(self)
	r := register(t, u, 2*PageSize, Read|Write)
	w, err := u.Translate(r.NLA()+PageSize-3, 10, vpid, self, Read|Write)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	b := w.Bytes()
	if len(b) != 10 || cap(b) != 10 || &b[0] != &r.Bytes()[PageSize-3] {
		t.Errorf("window of %d bytes, capacity %d", len(b), cap(b))
	}
	if err := w.WriteAt(foreign.Of([]byte{1, 2}), 8); err != nil {
		t.Fatal(err)
	}
	if m := r.Bytes(); m[PageSize+5] != 1 || m[PageSize+6] != 2 || m[PageSize+7] != 0 {
		t.Error("WriteAt wrote to the wrong place")
	}
}

type recorder struct {
	off  int64
	data []byte
	n    int
	err  error
}

func (d *recorder) WriteAt(p foreign.Memory, off int64) (int, error) {
	d.off, d.data = off, p.AppendTo(nil)
	return d.n, d.err
}

func TestDeviceWindow(t *testing.T) {
	u := New(self)
	d := &recorder{n: 3}
	r, err := u.RegisterDevice(vpid, d, 10000, Write)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes() != nil || r.Len() != 10000 {
		t.Errorf("Bytes %v, Len %d", r.Bytes(), r.Len())
	}
	nla, _ := r.Lend(peer)
	if _, err := u.Translate(nla, 10, vpid, peer, Read); !errors.Is(err, ErrAccess) {
		t.Errorf("read of a device: %v", err)
	}
	w, err := u.Translate(nla+5000, 100, vpid, peer, Write)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	if w.Bytes() != nil {
		t.Error("a device window has memory")
	}
	if err := w.WriteAt(foreign.Of([]byte("abc")), 7); err != nil || d.off != 5007 || string(d.data) != "abc" {
		t.Errorf("WriteAt: %v, device got %q at %d", err, d.data, d.off)
	}
	d.n = 2
	if err := w.WriteAt(foreign.Of([]byte("abc")), 0); !errors.Is(err, fabric.ErrDevice) {
		t.Errorf("short write: %v", err)
	}
	d.n, d.err = 3, io.ErrClosedPipe
	if err := w.WriteAt(foreign.Of([]byte("abc")), 0); !errors.Is(err, fabric.ErrDevice) {
		t.Errorf("device error: %v", err)
	}
}

func FuzzTranslate(f *testing.F) {
	u := New(self)
	r := register(f, u, 3*PageSize+1, Read)
	dev, err := u.RegisterDevice(vpid, nullDevice{}, leafPages*PageSize+1, Write)
	if err != nil {
		f.Fatal(err)
	}
	nla, _ := r.Lend(peer)
	devNLA, _ := dev.LendAll()
	f.Add(uint64(nla), 1, uint16(vpid), uint16(peer), uint8(Read))
	f.Add(uint64(nla+3*PageSize), 2, uint16(vpid), uint16(peer), uint8(Read))
	f.Add(uint64(devNLA), leafPages*PageSize+1, uint16(vpid), uint16(other), uint8(Write))
	f.Add(^uint64(0), -1, uint16(0xFFFF), uint16(0), uint8(0xFF))
	f.Fuzz(func(t *testing.T, a uint64, n int, v, from uint16, access uint8) {
		w, err := u.Translate(NLA(a), n, fabric.VPID(v), fabric.NodeID(from), Access(access))
		if err != nil {
			if !errors.Is(err, fabric.ErrProtection) {
				t.Fatalf("error %v", err)
			}
			return
		}
		defer w.Release()
		if w.Bytes() != nil && len(w.Bytes()) != n {
			t.Fatalf("window of %d bytes, asked for %d", len(w.Bytes()), n)
		}
	})
}

func TestTranslateDoesNotAllocate(t *testing.T) {
	u := New(self)
	r := register(t, u, 4*PageSize, Read)
	if n := testing.AllocsPerRun(1000, func() {
		nla, err := r.Lend(peer)
		if err != nil {
			t.Fatal(err)
		}
		w, err := u.Translate(nla, 4*PageSize, vpid, peer, Read)
		if err != nil {
			t.Fatal(err)
		}
		w.Release()
		if _, err := u.Translate(nla, 1, vpid, other, Read); err == nil {
			t.Fatal("not refused")
		}
		if !r.Revoke() {
			t.Fatal("not revoked")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTranslate(b *testing.B) {
	u := New(self)
	r := register(b, u, 64<<10, Read)
	nla, _ := r.Lend(peer)
	b.ReportAllocs()
	for b.Loop() {
		w, err := u.Translate(nla, 64<<10, vpid, peer, Read)
		if err != nil {
			b.Fatal(err)
		}
		w.Release()
	}
}

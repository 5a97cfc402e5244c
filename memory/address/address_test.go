package address_test

import (
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/internal/leaktest"
	"exnet/memory"
	"exnet/memory/address"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestGlobal(t *testing.T) {
	for _, c := range []struct {
		partition uint32
		offset    uint64
		want      address.Global
	}{{0, 0, 0}, {1, 0, 1 << 40}, {0, 1<<40 - 1, 1<<40 - 1}, {1<<24 - 1, 1<<40 - 1, 1<<64 - 1}} {
		g, err := address.MakeGlobal(c.partition, c.offset)
		if err != nil || g != c.want || g.Partition() != c.partition || g.Offset() != c.offset {
			t.Errorf("%d, %#x: %v, %v", c.partition, c.offset, g, err)
		}
	}
	for _, c := range []struct {
		partition uint32
		offset    uint64
	}{{1 << 24, 0}, {0, 1 << 40}} {
		if _, err := address.MakeGlobal(c.partition, c.offset); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%d, %#x: %v", c.partition, c.offset, err)
		}
	}
	if s := address.Global(0x123456789abcdef0).String(); s != "123456:789abcdef0" {
		t.Error(s)
	}
}

// The two upper bits choose a register, and are cleared.
func TestRegisters(t *testing.T) {
	var r address.Registers
	for i, p := range []uint32{7, 1<<24 - 1, 0} {
		if err := r.Set(i, p); err != nil {
			t.Error(err)
		}
	}
	const quarter = 1 << 38
	for _, c := range []struct{ local, want uint64 }{
		{0, 7 << 40}, {quarter - 1, 7<<40 | (quarter - 1)}, {quarter, (1<<24 - 1) << 40}, {2*quarter + 5, 5}, {3*quarter - 1, quarter - 1},
	} {
		if g, err := r.Global(c.local); err != nil || uint64(g) != c.want {
			t.Errorf("%#x: %v, %v, want %#x", c.local, g, err, c.want)
		}
	}
	if _, err := r.Global(3 * quarter); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("a register that is not set: %v", err)
	}
	if _, err := r.Global(1 << 40); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("41 bits: %v", err)
	}
	r.Clear(0)
	if _, err := r.Global(0); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("a register that was cleared: %v", err)
	}
	if !errors.Is(r.Set(4, 0), fabric.ErrInvalid) || !errors.Is(r.Set(-1, 0), fabric.ErrInvalid) || !errors.Is(r.Set(0, 1<<24), fabric.ErrInvalid) {
		t.Error("registers that there are not")
	}
}

// 64 intervals, their boundaries, and the 65th refused.
func TestIntervals(t *testing.T) {
	var s address.Intervals
	for i := range uint64(address.MaxIntervals) {
		n, err := s.Add(address.Interval{Start: i << 20, End: (i + 1) << 20, Target: 1 << 30, Node: fabric.NodeID(100 + i)})
		if err != nil || n != int(i) {
			t.Fatalf("%d: %d, %v", i, n, err)
		}
	}
	if _, err := s.Add(address.Interval{Start: 1 << 40, End: 1<<40 + 1}); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("the 65th: %v", err)
	}
	if err := s.Set(64, address.Interval{Start: 1 << 40, End: 1<<40 + 1}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("interval 64: %v", err)
	}
	for i := range uint64(address.MaxIntervals) {
		for _, g := range []uint64{0, 1, 1<<20 - 1} {
			node, at, err := s.Find(i<<20 + g)
			if err != nil || node != fabric.NodeID(100+i) || at != 1<<30+g {
				t.Errorf("%#x in interval %d: node %d, %#x, %v", g, i, node, at, err)
			}
		}
	}
	if _, _, err := s.Find(64 << 20); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("one past the last interval: %v", err)
	}
	s.Clear(3)
	if _, _, err := s.Find(3 << 20); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("an interval that was cleared: %v", err)
	}
	for what, v := range map[string]address.Interval{
		"overlaps the one before": {Start: 3<<20 - 1, End: 4 << 20}, "overlaps the next": {Start: 3 << 20, End: 4<<20 + 1},
	} {
		if err := s.Set(3, v); !errors.Is(err, fabric.ErrInUse) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, v := range map[string]address.Interval{
		"empty": {Start: 5 << 40, End: 5 << 40}, "backwards": {Start: 2, End: 1}, "past the target's end": {Start: 1 << 40, End: 1<<40 + 2, Target: 1<<64 - 1},
		"a mask with a gap": {Start: 1 << 40, End: 1 << 41, Mask: 5}, "17 bits": {Start: 1 << 40, End: 1 << 41, Mask: 1<<17 - 1},
	} {
		if err := s.Set(3, v); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// With a mask, bits of the offset choose the node (equations 3.3, 3.4).
func TestMask(t *testing.T) {
	var s address.Intervals
	if _, err := s.Add(address.Interval{Start: 1 << 32, End: 1<<32 + 4<<20, Target: 0x1000, Mask: 3 << 20}); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(4) {
		for _, off := range []uint64{0, 0xfffff} {
			node, at, err := s.Find(1<<32 + n<<20 + off)
			if err != nil || node != fabric.NodeID(n) || at != 0x1000+off {
				t.Errorf("node %d, offset %#x: node %d, %#x, %v", n, off, node, at, err)
			}
		}
	}
}

// Leases of two nodes are partitions of one memory.
func TestSpace(t *testing.T) {
	lend := pool.Config{Limits: pool.Limits{Lend: 1 << 20}}
	f := pooltest.New(t, pool.Config{}, lend, lend)
	var space address.Space
	for n := fabric.NodeID(1); n <= 2; n++ {
		s, err := memory.Borrow(t.Context(), memory.Config{Socket: f.Socket(0), Node: &n, Size: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := space.Map(uint32(n), s); err != nil {
			t.Fatal(err)
		}
	}
	var r address.Registers
	if err := errors.Join(r.Set(0, 1), r.Set(3, 2)); err != nil {
		t.Fatal(err)
	}
	for i, local := range []uint64{4096, 3<<38 + 4096} {
		g, err := r.Global(local)
		if err == nil {
			err = space.Write([]byte{byte(i + 1)}, g)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for n := uint32(1); n <= 2; n++ {
		g, _ := address.MakeGlobal(n, 4096)
		p := make([]byte, 1)
		if err := space.Read(p, g); err != nil || p[0] != byte(n) {
			t.Errorf("partition %d: %d, %v", n, p[0], err)
		}
		last, _ := address.MakeGlobal(n, 1<<20-1)
		if err := space.Read(make([]byte, 2), last); !errors.Is(err, fabric.ErrProtection) {
			t.Errorf("over the end of a partition: %v", err)
		}
	}
	if err := space.Read(make([]byte, 1), 3<<40); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("an empty partition: %v", err)
	}
	if err := errors.Join(space.Map(1, nil), space.Read(make([]byte, 1), 1<<40)); !errors.Is(err, fabric.ErrProtection) {
		t.Errorf("one that was unmapped: %v", err)
	}
	if err := space.Map(1<<24, nil); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("partition 2^24: %v", err)
	}
}

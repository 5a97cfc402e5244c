package crossbar

import (
	"errors"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/topo"
)

// square is four nodes in a ring: 0-1 by x, 0-2 by y.
func square(tb testing.TB) *Crossbars {
	tb.Helper()
	t, err := topo.NewMesh(topo.Dims{2, 2, 1}, 0)
	if err != nil {
		tb.Fatal(err)
	}
	x, err := New(t)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// around leads from 0 to 3 by y and x, where the tables say x and y.
func around() topo.Override {
	return topo.Override{From: 0, To: 3, Ports: []topo.Port{topo.PortYPlus, topo.PortXPlus}}
}

// crossed is how many packets have crossed the link from a to b.
func crossed(tb testing.TB, x *Crossbars, a, b fabric.NodeID) uint64 {
	tb.Helper()
	l, ok := x.Topology().Between(a, b)
	if !ok {
		tb.Fatalf("no link from %d to %d", a, b)
	}
	return x.Load().Link(l).AB.Packets
}

func TestReserve(t *testing.T) {
	x := square(t)
	s := Reservation{"one", []topo.Override{around()}}
	if err := x.Reserve(s, 0, true); err != nil || x.Routes().Hops(0, 3) != 2 {
		t.Fatal(err)
	}
	x.countPackets(0, 3, 0, 1, 1)
	if err := x.Reserve(s, 0, false); err != nil {
		t.Fatal(err)
	}
	s.Overrides[0].Ports[0] = topo.PortXPlus // the caller's
	s = Reservation{"one", []topo.Override{around()}}
	x.countPackets(0, 3, 0, 1, 1)
	x.countPackets(3, 0, 0, 1, 1) // back as before
	if path, err := x.Routes().Path(0, 3); err != nil || len(path) != 2 || path[0] != (topo.End{Node: 0, Port: topo.PortYPlus}) || x.Routes().Hops(0, 3) != 2 {
		t.Errorf("path %v, %v", path, err)
	}
	if a, b := crossed(t, x, 0, 1), crossed(t, x, 0, 2); a != 1 || b != 1 {
		t.Errorf("%d packets by x and %d by y", a, b)
	}
	// A cut link is gone round, and used again when it is back.
	for _, down := range []bool{true, false} {
		if err := x.SetLinkDown(0, 2, down); err != nil {
			t.Fatal(err)
		}
		x.countPackets(0, 3, 0, 1, 1)
	}
	if a, b := crossed(t, x, 0, 1), crossed(t, x, 0, 2); a != 2 || b != 2 {
		t.Errorf("with a cut: %d packets by x and %d by y", a, b)
	}
	for what, err := range map[string]error{
		"again":     x.Reserve(s, 0, false),
		"ID":        x.Reserve(s, 1, false),
		"pair":      x.Reserve(Reservation{"two", []topo.Override{around()}}, 1, false),
		"none":      x.Release("two"),
		"no link":   x.Reserve(Reservation{"two", []topo.Override{{From: 1, To: 2, Ports: []topo.Port{topo.PortZPlus}}}}, 1, false),
		"elsewhere": x.Reserve(Reservation{"two", []topo.Override{{From: 1, To: 2, Ports: []topo.Port{topo.PortXMinus}}}}, 1, false),
		"round":     x.Reserve(Reservation{"two", []topo.Override{{From: 1, To: 0, Ports: []topo.Port{topo.PortXMinus, topo.PortXPlus, topo.PortXMinus}}}}, 1, false),
		"no node":   x.Reserve(Reservation{"two", []topo.Override{{From: 1, To: 9}}}, 1, false),
		"no port":   x.Reserve(Reservation{"two", []topo.Override{{From: 1, To: 0, Ports: []topo.Port{99}}}}, 1, false),
		"twice":     x.Reserve(Reservation{"two", []topo.Override{{From: 1, To: 0, Ports: []topo.Port{topo.PortXMinus}}, {From: 1, To: 0, Ports: []topo.Port{topo.PortXMinus}}}}, 1, false),
		"too many":  x.Reserve(Reservation{"two", make([]topo.Override, MaxOverrides)}, 1, false),
	} {
		if err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	if err := x.Release("one"); err != nil {
		t.Fatal(err)
	}
	x.countPackets(0, 3, 0, 1, 1)
	if list, changes := x.Reservations(); len(list) != 0 || changes != 2 || crossed(t, x, 0, 1) != 3 {
		t.Errorf("%v, %d changes", list, changes)
	}
	if !errors.Is(x.Reserve(s, 1, false), fabric.ErrAgain) {
		t.Error("an old number of changes is taken")
	}
}

// While routes change, each packet goes one whole way or the other: none is lost.
func TestReserveUnderTraffic(t *testing.T) {
	x := square(t)
	const packets = 20000
	var all sync.WaitGroup
	all.Go(func() {
		for range packets {
			x.countPackets(0, 3, 0, 1, 1)
		}
	})
	for i := uint64(0); i < 200; i += 2 {
		if err := x.Reserve(Reservation{"one", []topo.Override{around()}}, i, false); err != nil {
			t.Fatal(err)
		}
		if err := x.Release("one"); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if a, b := crossed(t, x, 0, 1), crossed(t, x, 0, 2); a+b != packets || x.Load().Total().Packets != 2*packets {
		t.Errorf("%d by x and %d by y of %d, %d hops", a, b, packets, x.Load().Total().Packets)
	}
}

// An override of a class is for that class alone; one without, for all that have none.
func TestReserveClass(t *testing.T) {
	x := square(t)
	tagged := around()
	tagged.Class = 10
	byX := topo.Override{From: 0, To: 3, Class: 20, Ports: []topo.Port{topo.PortXPlus, topo.PortYPlus}}
	for i, s := range []Reservation{{"ten", []topo.Override{tagged}}, {"twenty", []topo.Override{byX}}, {"all", []topo.Override{around()}}} {
		if err := x.Reserve(s, uint64(i), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Reserve(Reservation{"again", []topo.Override{tagged}}, 3, false); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("the same nodes and class: %v", err)
	}
	bad := tagged
	bad.Class = fabric.Classes
	if err := x.Reserve(Reservation{"bad", []topo.Override{bad}}, 3, false); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("class %d: %v", bad.Class, err)
	}
	if err := x.Release("all"); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		class    fabric.Class
		all      bool
		byX, byY uint64
	}{{0, false, 1, 0}, {10, false, 0, 1}, {20, false, 1, 0}, {30, false, 1, 0}, {0, true, 0, 1}, {10, true, 0, 1}, {20, true, 1, 0}, {30, true, 0, 1}} {
		if tt.all && tt.class == 0 {
			if err := x.Reserve(Reservation{"all", []topo.Override{around()}}, 4, false); err != nil {
				t.Fatal(err)
			}
		}
		a, b := crossed(t, x, 0, 1), crossed(t, x, 0, 2)
		x.countPackets(0, 3, tt.class, 1, 1)
		if a, b = crossed(t, x, 0, 1)-a, crossed(t, x, 0, 2)-b; a != tt.byX || b != tt.byY {
			t.Errorf("%d: %+v, but %d by x, %d by y", i, tt, a, b)
		}
	}
}

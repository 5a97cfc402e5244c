package velo_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/velo"
)

// noCredit is the source of a peer that does not care about credits.
type noCredit struct{ returned uint64 }

func (c *noCredit) Return(total uint64) { c.returned = total }
func (c *noCredit) Resume()             {}
func (c *noCredit) Down()               {}

// hostile opens a flow from node 7 into a new mailbox of node 1, through which a
// test writes whatever status words it likes.
func hostile(tb testing.TB, cfg velo.Config) (*velo.Endpoint, link.Flow, *noCredit) {
	tb.Helper()
	n := fabrictest.NewNIC(tb, 1)
	e := fabrictest.OpenVELO(tb, n, vpid, cfg)
	c := new(noCredit)
	f, err := n.AcceptFlow(7, 3, vpid, c)
	if err != nil {
		tb.Fatal(err)
	}
	return e, f, c
}

func write(tb testing.TB, f link.Flow, status uint64) {
	tb.Helper()
	_, pos, err := f.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	f.Commit(pos, status)
	f.Raise()
}

func word(tb testing.TB, s velo.Status) uint64 {
	tb.Helper()
	b, err := s.AppendBinary(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b)
}

func TestBadSlotsAreSkipped(t *testing.T) {
	good := velo.Status{Src: 7, SrcVPID: 3, Len: 10}
	const lengthShift, flowShift = 40, 47
	e, f, c := hostile(t, velo.Config{Slots: 16, Credits: 4})
	g := word(t, good)
	for _, tt := range []struct {
		name   string
		status uint64
		count  func(velo.Stats) uint64
	}{
		{"length 127", g | 127<<lengthShift, func(s velo.Stats) uint64 { return s.BadSlot }},
		{"length 121", g&^(127<<lengthShift) | 121<<lengthShift, func(s velo.Stats) uint64 { return s.BadSlot }},
		{"other node", g ^ 1, func(s velo.Stats) uint64 { return s.BadSlot }},
		{"other VPID", g ^ 1<<16, func(s velo.Stats) uint64 { return s.BadSlot }},
		{"unknown flow", g | 1<<flowShift, func(s velo.Stats) uint64 { return s.BadFlow }},
		{"void", g &^ (127 << lengthShift), func(s velo.Stats) uint64 { return s.Void }},
	} {
		before := tt.count(e.Stats())
		write(t, f, tt.status)
		if st, _, ok := e.Peek(); ok {
			t.Errorf("%s: a message was read: %+v", tt.name, st)
		}
		if n := tt.count(e.Stats()) - before; n != 1 {
			t.Errorf("%s: counted %d times", tt.name, n)
		}
		write(t, f, tt.status)
		write(t, f, g)
		if st, _, ok := e.Peek(); !ok || st != good {
			t.Errorf("%s: the good message behind it: %+v, %v", tt.name, st, ok)
		}
		e.Advance()
	}
	if c.returned != 5*3+1 { // the unknown flow's slots belong to nobody
		t.Errorf("%d credits returned", c.returned)
	}
	for range 16 { // the phase bit is the mailbox's, not the peer's
		write(t, f, g|1<<63)
	}
	if n := drain(e); n != 16 {
		t.Errorf("%d messages", n)
	}
}

// A peer that ignores its credits can fill the ring and no more; honest sources
// are refused and woken, and nothing breaks.
func TestPeerWithoutManners(t *testing.T) {
	nics := fabrictest.New(t, 2)
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	y := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{Slots: 8, Credits: 2})
	f, err := nics[1].AcceptFlow(7, 3, vpid, new(noCredit))
	if err != nil {
		t.Fatal(err)
	}
	g := word(t, velo.Status{Src: 7, SrcVPID: 3, Len: 1, Flow: f.ID()})
	for range 8 {
		write(t, f, g)
	}
	if _, _, err := f.Reserve(); !errors.Is(err, fabric.ErrAgain) {
		t.Fatalf("ninth slot of 8: %v", err)
	}
	c := watch(x)
	if n := fill(t, x, 1); n != 0 {
		t.Fatalf("%d messages went into a full mailbox", n)
	}
	if n := drain(y); n != 8 {
		t.Fatalf("%d messages read", n)
	}
	if got := c.take(); len(got) != 1 {
		t.Errorf("OnCredit(%v)", got)
	}
	if err := x.Send(to(1), []byte{1}); err != nil {
		t.Error(err)
	}
}

func TestAcceptChecksArguments(t *testing.T) {
	n := fabrictest.NewNIC(t, 1)
	fabrictest.OpenVELO(t, n, vpid, velo.Config{Slots: 1})
	for _, tt := range []struct {
		from, to fabric.VPID
		want     error
	}{
		{256, vpid, fabric.ErrInvalid},
		{0, 256, fabric.ErrInvalid},
		{0, 2, fabric.ErrPeerDown},
	} {
		if f, err := n.AcceptFlow(7, tt.from, tt.to, new(noCredit)); f != nil || !errors.Is(err, tt.want) {
			t.Errorf("flow %d to %d: %v, %v", tt.from, tt.to, f, err)
		}
	}
	for range 1 << 16 {
		if _, err := n.AcceptFlow(7, 1, vpid, new(noCredit)); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := n.AcceptFlow(7, 1, vpid, new(noCredit)); f != nil || !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("flow 65537: %v, %v", f, err)
	}
}

// Whatever a peer writes, the mailbox goes on.
func FuzzSlot(f *testing.F) {
	f.Add(uint64(0), uint64(0))
	f.Add(^uint64(0), uint64(7|3<<16|1<<40))
	e, flow, _ := hostile(f, velo.Config{Slots: 2, Credits: 1})
	f.Fuzz(func(t *testing.T, a, b uint64) {
		for _, w := range []uint64{a, b} {
			write(t, flow, w)
			if st, p, ok := e.Peek(); ok {
				if len(p) != int(st.Len) || len(p) == 0 || st.Src != 7 || st.SrcVPID != 3 {
					t.Fatalf("%#x: %+v, %d bytes", w, st, len(p))
				}
				e.Advance()
			}
			if _, _, ok := e.Peek(); ok {
				t.Fatalf("%#x: more than one message", w)
			}
		}
	})
}

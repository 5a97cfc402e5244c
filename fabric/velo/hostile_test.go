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
	for i := range 1 << 16 {
		if _, err := n.AcceptFlow(fabric.NodeID(7+i>>14), 1, vpid, new(noCredit)); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := n.AcceptFlow(11, 1, vpid, new(noCredit)); f != nil || !errors.Is(err, fabric.ErrPeerDown) {
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

// A peer that opens flows without end takes no number from another one; when its link has ended,
// its numbers are free once its messages are read, and a flow that gets one counts from 0.
func TestFlowsWithoutEnd(t *testing.T) {
	n := fabrictest.NewNIC(t, 1)
	e := fabrictest.OpenVELO(t, n, vpid, velo.Config{Slots: 16, Credits: 8})
	open := func(src fabric.NodeID, c link.Credit) link.Flow {
		f, err := n.AcceptFlow(src, 3, vpid, c)
		if err != nil {
			return nil
		}
		return f
	}
	flood := func() (all []link.Flow) {
		for len(all) <= 1<<16 {
			f := open(7, new(noCredit))
			if f == nil {
				break
			}
			all = append(all, f)
		}
		return all
	}
	all := flood()
	if len(all) != 1<<14 {
		t.Errorf("%d flows of one node", len(all))
	}
	good := new(noCredit)
	other := open(8, good)
	if other == nil {
		t.Fatal("no flow of another node")
	}
	write(t, other, word(t, velo.Status{Src: 8, SrcVPID: 3, Len: 1, Flow: other.ID()}))
	last := all[len(all)-1]
	write(t, last, word(t, velo.Status{Src: 7, SrcVPID: 3, Len: 1, Flow: last.ID()}))
	for _, f := range all {
		link.End(f)
	}
	if open(7, new(noCredit)) != nil {
		t.Error("a number is free before the messages are read")
	}
	if got := drain(e); got != 2 || good.returned != 1 {
		t.Errorf("%d messages read, %d credits", got, good.returned)
	}
	for round := range 5 { // it comes again, more often than there are numbers
		all = flood()
		if len(all) != 1<<14 {
			t.Fatalf("round %d: %d flows", round, len(all))
		}
		for _, f := range all {
			link.End(f)
		}
		drain(e)
	}
	c := new(noCredit)
	f := open(9, c)
	if f == nil || f.ID() >= 1<<14+1 {
		t.Fatalf("%v", f)
	}
	write(t, f, word(t, velo.Status{Src: 9, SrcVPID: 3, Len: 1, Flow: f.ID()}))
	if drain(e); c.returned != 1 {
		t.Errorf("%d credits of one message", c.returned)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

package ports

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/foreigntest"
)

// attach returns the share that this process has of a node's NIC.
func (n *node) attach(tb testing.TB) *nic.NIC {
	tb.Helper()
	a, err := nic.Attach(nic.AttachConfig{Socket: n.processes})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = a.Close() }) // a test may have closed it
	return a
}

// A program's share of its node's NIC does what a NIC does.
func TestAttachSuite(t *testing.T) {
	fabrictest.Suite(t, fabrictest.Link{Name: "ports", Ports: true, New: func(tb testing.TB, n int) []*nic.NIC {
		all := nodes(tb, n, func(c *Config) { c.Node-- })
		nics := make([]*nic.NIC, n)
		for i := range nics {
			if nics[i] = all[i].attach(tb); nics[i].ID() != fabric.NodeID(i) {
				tb.Fatalf("node %d, want %d", nics[i].ID(), i)
			}
		}
		return nics
	}})
}

// Groups are the node's, and a message to one goes to those of its members that have opened the
// VPID, whether in Go or in C, or to none.
func TestAttachGroups(t *testing.T) {
	const group, flow = 5, 128 // slots of a port's flow
	all := nodes(t, 4, func(c *Config) {
		c.Members = func(g fabric.GroupID) []fabric.NodeID {
			if g == group {
				return []fabric.NodeID{2, 3, 4}
			}
			return nil
		}
	})
	x := fabrictest.OpenVELO(t, all[0].attach(t), goVPID, velo.Config{})
	y := fabrictest.OpenVELO(t, all[1].attach(t), goVPID, velo.Config{Slots: 2})
	d := velo.Descriptor{Group: group, VPID: goVPID, Tag: 7, Type: 3}
	takes := func(e *velo.Endpoint, want byte) {
		t.Helper()
		fabrictest.Eventually(t, "message", func() bool { _, _, ok := e.Peek(); return ok })
		st, p, _ := e.Peek()
		if !st.Multicast || st.Src != 1 || st.SrcVPID != goVPID || st.Tag != 7 || st.Type != 3 || len(p) != 1 || p[0] != want {
			t.Errorf("%+v: %x, want %d", st, p, want)
		}
		e.Advance()
	}
	if err := x.SendMulticast(velo.Descriptor{Group: 6, VPID: goVPID}, []byte{1}); err != nil {
		t.Errorf("to nobody: %v", err)
	}
	if err := x.SendMulticast(d, []byte{1}); err != nil {
		t.Fatal(err)
	}
	takes(y, 1)
	if s := x.Stats(); s.MulticastAbsent != 2 {
		t.Errorf("%d members are absent, of 2", s.MulticastAbsent)
	}
	// A member that opens later gets what is sent then.
	z := fabrictest.OpenVELO(t, all[2].attach(t), goVPID, velo.Config{})
	sent := byte(1)
	fabrictest.Eventually(t, "the member that has opened later", func() bool {
		sent++
		if err := x.SendMulticast(d, []byte{sent}); err != nil {
			t.Fatal(err)
		}
		takes(y, sent)
		_, _, ok := z.Peek()
		return ok
	})
	// The first that came may have been late, and another be sent meanwhile.
	for _, first, _ := z.Peek(); len(first) == 1 && first[0] < sent; _, first, _ = z.Peek() {
		takes(z, first[0])
		fabrictest.Eventually(t, "the next message", func() bool { _, _, ok := z.Peek(); return ok })
	}
	takes(z, sent)
	// y does not read: none gets more than it has room for.
	fabrictest.Eventually(t, "ErrAgain", func() bool {
		err := x.SendMulticast(d, []byte{9})
		if err == nil {
			takes(z, 9)
		}
		return errors.Is(err, fabric.ErrAgain) && x.GroupCredits(group, goVPID) == 0
	})
	if n, err := x.SendMulticastSkip(d, []byte{10}); n != 1 || err != nil {
		t.Errorf("skipped %d, %v", n, err)
	}
	takes(z, 10)
	for _, _, ok := y.Peek(); ok; _, _, ok = y.Peek() {
		takes(y, 9)
	}
	// One that ends is left out.
	if err := y.Close(); err != nil {
		t.Error(err)
	}
	fabrictest.Eventually(t, "the end of a member", func() bool {
		before := x.Stats().MulticastAbsent
		if err := x.SendMulticast(d, []byte{11}); err != nil {
			t.Fatal(err)
		}
		takes(z, 11)
		return x.Stats().MulticastAbsent == before+2
	})
}

// An interrupt handler may send to whoever it has not sent to before, which asks the node.
func TestAttachReplies(t *testing.T) {
	n := nodes(t, 1)[0]
	for range 20 {
		a, b := n.attach(t), n.attach(t)
		x, y := fabrictest.OpenVELO(t, a, goVPID, velo.Config{}), fabrictest.OpenVELO(t, b, goVPID+1, velo.Config{})
		y.OnInterrupt(func() {
			if st, p, ok := y.Peek(); ok {
				if err := y.Send(velo.Descriptor{Dst: st.Src, VPID: st.SrcVPID}, p); err != nil {
					t.Error(err)
				}
				y.Advance()
			}
		})
		y.EnableInterrupt()
		if err := x.Send(velo.Descriptor{Dst: 1, VPID: goVPID + 1}, []byte{1}); err != nil {
			t.Fatal(err)
		}
		fabrictest.Eventually(t, "a reply", func() bool { _, _, ok := x.Peek(); return ok })
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		n.idle(t)
	}
}

// A peer that changes its memory while a program reads it changes nothing of what comes.
func TestAttachReadsOnce(t *testing.T) {
	all := nodes(t, 2)
	fabrictest.ReadOnce(t, all[0].attach(t), all[1].attach(t), foreigntest.Flip)
}

// goPort is a program in Go with a region that others may use, a mailbox and an RMA endpoint.
type goPort struct {
	*nic.NIC
	velo   *velo.Endpoint
	rma    *rma.Endpoint
	region *atu.Region
}

const goVPID fabric.VPID = 77

func (n *node) goPort(t *testing.T) (g goPort, peer []string) {
	t.Helper()
	g.NIC = n.attach(t)
	g.velo = fabrictest.OpenVELO(t, g.NIC, goVPID, velo.Config{})
	g.rma = fabrictest.OpenRMA(t, g.NIC, goVPID, rma.Config{})
	mem, err := g.ATU().Alloc(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if g.region, err = g.ATU().Register(goVPID, mem, atu.Read|atu.Write); err != nil {
		t.Fatal(err)
	}
	nla, err := g.region.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	return g, strings.Fields(fmt.Sprintln(n.cfg.Node, goVPID, uint64(nla), goVPID))
}

// A program in C PUTs to the memory of one in Go and sends to it; what it lends is taken back while
// the one in C uses it, and is not written to afterwards.
func TestAttachServesC(t *testing.T) {
	all := nodes(t, 2)
	for i, from := range all {
		g, peer := all[0].goPort(t)
		client := from.start(t, "plain", append([]string{"peers", "hammer"}, peer...)...)
		if got := client.line(); got != "connected" {
			t.Fatalf("the client said %q", got)
		}
		puts, messages := 0, 0
		read := func() {
			for n, ok := g.rma.Next(); ok; n, ok = g.rma.Next() {
				if n.Writer != rma.Completer || n.Command != rma.CommandPut || n.Len != 4096 || n.Node != fabric.NodeID(i+1) {
					t.Fatalf("%+v", n)
				}
				puts++
			}
			for st, p, ok := g.velo.Peek(); ok; st, p, ok = g.velo.Peek() {
				if st.Src != fabric.NodeID(i+1) || !bytes.Equal(p, bytes.Repeat([]byte{1}, 100)) {
					t.Fatalf("%+v: %x", st, p)
				}
				g.velo.Advance()
				messages++
			}
		}
		fabrictest.Eventually(t, "PUTs and messages", func() bool {
			read()
			return puts > 500 && messages > 500
		})
		fabrictest.Eventually(t, "the region is taken back", g.region.Revoke)
		mem := g.region.Bytes()
		if mem[0] != 1 || mem[len(mem)-1] != 1 {
			t.Errorf("%x", mem[:8])
		}
		clear(mem)
		said := make(chan string)
		go func() { said <- client.line() }()
		for got := ""; got == ""; {
			select {
			case got = <-said:
				if got != "gone" { // its next PUT is refused
					t.Fatalf("the client said %q", got)
				}
			default:
				read() // it may wait for room
			}
		}
		if !bytes.Equal(mem, make([]byte, len(mem))) {
			t.Error("it was written to after it was taken back")
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		all[0].idle(t)
	}
}

// A program in Go PUTs to one in C, GETs that back, and sends to it.
func TestAttachUsesC(t *testing.T) {
	all := nodes(t, 2)
	for _, from := range all {
		server := all[0].start(t, "asan", "peers", "serve", "1")
		var node fabric.NodeID
		var vpid, box fabric.VPID
		var nla atu.NLA
		if _, err := fmt.Sscan(server.line(), &node, &vpid, &nla, &box); err != nil {
			t.Fatal(err)
		}
		g, _ := from.goPort(t)
		mem := g.region.Bytes()
		for i := range mem {
			mem[i] = byte(i * 7)
		}
		want := bytes.Clone(mem)
		step := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if n, ok := g.rma.Next(); !ok || n.Status != fabric.StatusOK {
				t.Fatalf("%+v, %v", n, ok)
			}
		}
		step(g.rma.Put(rma.PutReq{Local: g.region.NLA(), Remote: nla, Len: len(mem), Node: node, VPID: vpid,
			Notify: rma.NotifyRequester | rma.NotifyCompleter}))
		clear(mem)
		step(g.rma.Get(rma.GetReq{Local: g.region.NLA(), Remote: nla, Len: len(mem), Node: node, VPID: vpid,
			Notify: rma.NotifyCompleter | rma.NotifyResponder}))
		if !bytes.Equal(mem, want) {
			t.Error("other data came back")
		}
		for i := range 300 { // more than fit
			d := velo.Descriptor{Dst: node, VPID: box, Tag: byte(i)}
			if err := g.velo.Send(d, mem[:100]); err != nil && !errors.Is(err, fabric.ErrAgain) {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if got := server.last(t); got != "gone" {
			t.Errorf("the server said %q", got)
		}
		all[0].idle(t)
	}
}

// A process in C that writes anything to all that a program in Go has granted it does not harm
// that.
func TestAttachHostile(t *testing.T) {
	all := nodes(t, 1)
	for seed := range 3 {
		g, peer := all[0].goPort(t)
		liar := all[0].start(t, "plain", append([]string{"peers", "lie", fmt.Sprint(seed)}, peer...)...)
		lies := make(chan struct{})
		go func() {
			defer close(lies)
			_ = liar.Wait()
		}()
		for done := false; !done; {
			select {
			case <-lies:
				done = true
			default:
			}
			for _, ok := g.rma.Next(); ok; _, ok = g.rma.Next() {
			}
			for _, _, ok := g.velo.Peek(); ok; _, _, ok = g.velo.Peek() {
				g.velo.Advance()
			}
		}
		if err := g.region.Close(); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		all[0].idle(t)
	}
}

// What differs from a NIC of its own is refused, with errors that say so.
func TestAttachRefusals(t *testing.T) {
	all := nodes(t, 1)
	if _, err := nic.Attach(nic.AttachConfig{Socket: all[0].processes + "-not"}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("no node: %v", err)
	}
	a, b := all[0].attach(t), all[0].attach(t)
	if _, err := a.OpenVELO(7, velo.Config{}); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("a VPID of the node's: %v", err)
	}
	fabrictest.OpenRMA(t, a, goVPID, rma.Config{})
	if _, err := b.OpenRMA(goVPID, rma.Config{}); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("another program's VPID: %v", err)
	}
	if _, err := a.OpenRMA(goVPID, rma.Config{}); !errors.Is(err, fabric.ErrInUse) {
		t.Errorf("the same VPID: %v", err)
	}
	private := fabrictest.Register(t, a, goVPID, 4096, atu.Read)
	if _, err := private.Lend(1); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("memory that is not of Alloc: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.OpenVELO(goVPID, velo.Config{}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("a closed NIC: %v", err)
	}
	fabrictest.Eventually(t, "the VPID is free again", func() bool {
		_, err := b.OpenRMA(goVPID, rma.Config{})
		return err == nil
	})
}

// The node ends: whoever sends is told.
func TestAttachNodeEnds(t *testing.T) {
	all := nodes(t, 2)
	a, _ := all[0].goPort(t)
	b, _ := all[1].goPort(t)
	d := velo.Descriptor{Dst: 2, VPID: goVPID}
	if err := a.velo.Send(d, []byte{1}); err != nil {
		t.Fatal(err)
	}
	fabrictest.Eventually(t, "message", func() bool { _, _, ok := b.velo.Peek(); return ok })
	all[0].Close()
	fabrictest.Eventually(t, "ErrPeerDown", func() bool { return errors.Is(a.velo.Send(d, []byte{1}), fabric.ErrPeerDown) })
}

package exn

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/velo"
	"exnet/foreign"
)

// small is a configuration whose queues and credits are soon used up.
func small() Config {
	return Config{Buffers: 64, Mailbox: velo.Config{Slots: 256, Credits: 16}, StallTime: time.Minute, TransferTimeout: time.Minute}
}

// feed sends numbered frames to a node until the interface is stopped, as txloop
// does, and returns how many.
func (n *testNode) feed(tb testing.TB, dst arp.MAC, from uint32, size int) (sent uint32) {
	tb.Helper()
	for ; !n.Stopped(); sent++ {
		if err := n.TransmitCopy(exteth.Offload{}, n.frame(dst, from+sent, size)); err != nil {
			tb.Fatal(err)
		}
	}
	return sent
}

// checkNumbers fails the test unless got are the frames 0 to n-1 from src, in
// order.
func checkNumbers(tb testing.TB, got []gotFrame, src fabric.NodeID, n uint32) {
	tb.Helper()
	if len(got) != int(n) {
		tb.Errorf("%d frames from node %d, want %d", len(got), src, n)
		return
	}
	for i, g := range got {
		if num, ok := number(g.Bytes); num != uint32(i) || !ok || g.Src != src {
			tb.Errorf("frame %d: number %d of node %d, contents right: %v", i, num, g.Src, ok)
			return
		}
	}
}

// A receiver that does not poll stops its sender, and loses nothing.
func TestSlowPeer(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
	}{{"eager", 100}, {"four messages", 480}, {"rendezvous", 2000}} {
		t.Run(tt.name, func(t *testing.T) {
			net := newNet(t, 2, small())
			a, b := net.nodes[0], net.nodes[1]
			a.start(t)
			sent := a.feed(t, net.mac(2), 0, tt.size)
			if sent < 16 || sent > 64 {
				t.Errorf("stopped after %d frames", sent)
			}
			select {
			case <-a.ready:
				t.Error("OnReady was called already")
			default:
			}
			b.start(t)
			select {
			case <-a.ready:
			case <-time.After(3 * time.Minute):
				t.Fatal("OnReady was not called")
			}
			if a.Stopped() {
				t.Error("stopped after OnReady")
			}
			a.checkBuffers(t)
			eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(sent) })
			checkNumbers(t, b.frames.Take(), a.id, sent)
			if s := a.Stats(); s.TxStops != 1 || s.TxStalled+s.TxStalls != 0 {
				t.Errorf("%d stops, %d stalls, %d dropped", s.TxStops, s.TxStalls, s.TxStalled)
			}
		})
	}
}

// Whoever does not heed Stopped loses frames, and they are counted.
func TestQueueFull(t *testing.T) {
	net := newNet(t, 2, small())
	a, b := net.nodes[0], net.nodes[1]
	a.start(t)
	sent := a.feed(t, net.mac(2), 0, 100)
	for range a.queueSlack() { // of those who looked at Stopped just before
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), sent, 100)); err != nil {
			t.Errorf("frame %d: %v", sent, err)
		}
		sent++
	}
	for range 10 {
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 999, 100)); !errors.Is(err, ErrStalled) {
			t.Errorf("into a full queue: %v", err)
		}
	}
	if s := a.Stats(); s.TxStalled != 10 {
		t.Errorf("%d dropped, want 10", s.TxStalled)
	}
	b.start(t)
	a.checkBuffers(t)
	eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(sent) })
	checkNumbers(t, b.frames.Take(), a.id, sent)
}

// A peer that takes nothing costs only its own traffic: it stops the interface
// for the stall time, then it loses what it has no room for, and the frames to
// others go on. When it takes frames again it gets them. Here and below the stall
// time passes in a synctest bubble: a machine that is busy stalls nobody.
func TestStalledPeer(t *testing.T) { synctest.Test(t, testStalledPeer) }

func testStalledPeer(t *testing.T) {
	for _, size := range []int{100, 2000} {
		cfg := small()
		cfg.StallTime = 10 * time.Millisecond
		net := newNet(t, 3, cfg)
		a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
		a.start(t)
		c.start(t)
		sent := a.feed(t, net.mac(2), 0, size)
		select {
		case <-a.ready:
		case <-time.After(3 * time.Minute):
			t.Fatal("a stalled peer stops the interface for good")
		}
		s := a.Stats()
		if s.TxStalls != 1 || s.TxStalled != uint64(cfg.Buffers/4-1) {
			t.Errorf("%d stalls, %d dropped; want 1 and %d", s.TxStalls, s.TxStalled, cfg.Buffers/4-1)
		}
		// Traffic to it is dropped, to another one not.
		const n = 500
		for i := range uint32(n) {
			if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 999, size)); !errors.Is(err, ErrStalled) {
				t.Fatalf("to the stalled peer: %v", err)
			}
			if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(3), i, size)); err != nil {
				t.Fatalf("to another peer: %v", err)
			}
			if a.Stopped() {
				t.Fatal("stopped again")
			}
		}
		eventually(t, "the other peer's frames", func() bool { return c.Stats().Port.RxBytes == uint64(n*size) })
		checkNumbers(t, c.frames.Take(), a.id, n)
		if got := a.Stats().TxStalled - s.TxStalled; got != n {
			t.Errorf("%d dropped, want %d", got, n)
		}
		// It wakes up, gets what was sent before, and what is sent from now on.
		b.start(t)
		a.checkBuffers(t)
		left := sent - uint32(cfg.Buffers/4-1)
		eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(left) })
		checkNumbers(t, b.frames.Take(), a.id, left)
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 0, size)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a frame after the stall", func() bool { return len(b.frames.Take()) == 1 })
		a.checkBuffers(t)
	}
}

// A peer that takes nothing for half of TCP's shortest time-out, as on a busy host, loses nothing:
// TCP would take each lost frame for a reason to wait longer and longer.
func TestBusyPeer(t *testing.T) { synctest.Test(t, testBusyPeer) }

func testBusyPeer(t *testing.T) {
	cfg := small()
	cfg.StallTime = 0 // the default
	net := newNet(t, 2, cfg)
	a, b := net.nodes[0], net.nodes[1]
	a.start(t)
	sent := a.feed(t, net.mac(2), 0, 2000)
	time.Sleep(100 * time.Millisecond)
	b.start(t)
	a.checkBuffers(t)
	eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(sent) })
	checkNumbers(t, b.frames.Take(), a.id, sent)
	if s := a.Stats(); s.TxStalls+s.TxStalled != 0 {
		t.Errorf("%d stalls, %d dropped", s.TxStalls, s.TxStalled)
	}
}

// Traffic to others does not put off the moment at which a peer counts as
// stalled.
func TestStallNotPutOff(t *testing.T) { synctest.Test(t, testStallNotPutOff) }

func testStallNotPutOff(t *testing.T) {
	cfg := small()
	cfg.StallTime = 20 * time.Millisecond
	net := newNet(t, 3, cfg)
	a, c := net.nodes[0], net.nodes[2]
	a.start(t)
	c.start(t)
	c.onFrame = func(fabric.NodeID, exteth.Offload, foreign.Frame) error { return nil }
	a.feed(t, net.mac(2), 0, 100)
	for deadline := time.Now().Add(2 * time.Second); a.Stopped(); {
		if time.Now().After(deadline) {
			t.Fatal("the peer is not found to be stalled while others have traffic")
		}
		// As netstack does it, which does not ask whether it is stopped.
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(3), 0, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A node that goes away takes its queue along; its sender is not stopped for
// longer than that.
func TestLossOfPeer(t *testing.T) { synctest.Test(t, testLossOfPeer) }

func testLossOfPeer(t *testing.T) {
	for _, how := range []string{"close", "detach"} {
		for _, size := range []int{100, 2000} {
			cfg := small()
			if size == 2000 { // nobody says that lent buffers will not be read
				cfg.StallTime = 10 * time.Millisecond
			}
			net := newNet(t, 3, cfg)
			a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
			a.start(t)
			c.start(t)
			a.feed(t, net.mac(2), 0, size)
			if how == "close" {
				b.Close()
			} else if err := net.fabric.Detach(b.nic); err != nil {
				t.Fatal(err)
			}
			select {
			case <-a.ready:
			case <-time.After(3 * time.Minute):
				t.Fatalf("%s: a node that is gone stops the interface", how)
			}
			if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(3), 0, size)); err != nil {
				t.Errorf("%s: to another peer: %v", how, err)
			}
			eventually(t, "the frame", func() bool { return len(c.frames.Take()) == 1 })
			time.Sleep(defaultAwayTime + time.Second) // it might come back until then
			if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 0, size)); err == nil {
				t.Errorf("%s: a frame was sent to nobody", how)
			}
			if size == 100 { // those of a rendezvous come back by a timeout
				a.checkBuffers(t)
			}
		}
	}
}

// What is sent while a link is away comes over the next one, in order. Frames that wait for links
// are no more than one queue's. Those of all peers stop the interface for the stall time.
func TestLinkComesBack(t *testing.T) { synctest.Test(t, testLinkComesBack) }

func testLinkComesBack(t *testing.T) {
	for _, size := range []int{100, 2000} {
		cfg := small()
		cfg.StallTime = 0 // the default
		net := newNet(t, 4, cfg)
		a, b, c, d := net.nodes[0], net.nodes[1], net.nodes[2], net.nodes[3]
		for _, n := range net.nodes {
			n.start(t)
		}
		if err := net.fabric.Detach(b.nic); err != nil {
			t.Fatal(err)
		}
		const sent = 10
		for i := range uint32(sent) {
			if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), i, size)); err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		time.Sleep(defaultAwayTime / 2)
		if err := net.fabric.Attach(b.nic); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the last frame", func() bool { return b.frames.Len() >= sent })
		checkNumbers(t, b.frames.Take(), a.id, sent)
		if s := a.Stats(); s.TxAway != sent || s.TxStalled+s.TxStalls+s.TxStops != 0 {
			t.Errorf("%d frames waited, %d dropped, %d stalls, %d stops", s.TxAway, s.TxStalled, s.TxStalls, s.TxStops)
		}
		eventually(t, "an empty queue", func() bool { return a.backlog.Load() == 0 })
		a.checkBuffers(t)

		for _, n := range []*testNode{b, c} {
			if err := net.fabric.Detach(n.nic); err != nil {
				t.Fatal(err)
			}
		}
		kept := 0
		for range 2 * small().Buffers {
			for _, to := range []*testNode{b, c} {
				switch err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(to.id), 0, size)); {
				case err == nil:
					kept++
				case !errors.Is(err, ErrStalled):
					t.Fatal(err)
				}
			}
		}
		if want := a.queueLimit() + a.queueSlack(); kept != want || !a.Stopped() {
			t.Errorf("%d frames wait, want %d; stopped: %v", kept, want, a.Stopped())
		}
		time.Sleep(defaultStallTime + 100*time.Millisecond)
		if a.Stopped() {
			t.Error("stopped for longer than the stall time")
		}
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(d.id), 0, size)); err != nil {
			t.Errorf("to another peer: %v", err)
		}
		eventually(t, "the frame", func() bool { return len(d.frames.Take()) == 1 })
		time.Sleep(defaultAwayTime + time.Second)
		a.checkBuffers(t)
		if n, m := a.away.Load(), a.backlog.Load(); n != 0 || m != 0 {
			t.Errorf("%d frames and %d queues wait for links that have not come", n, m)
		}
	}
}

// A peer that was away, and has no room as it comes back, has the stall time to make some.
func TestReachedPeer(t *testing.T) { synctest.Test(t, testReachedPeer) }

func testReachedPeer(t *testing.T) {
	cfg := small()
	cfg.StallTime = 0 // the default
	cfg.Mailbox = velo.Config{Slots: 16, Credits: 16}
	net := newNet(t, 3, cfg)
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	a.start(t)
	c.start(t)
	for i := range uint32(cfg.Mailbox.Slots) {
		if err := c.TransmitCopy(exteth.Offload{}, c.frame(net.mac(b.id), i, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := net.fabric.Detach(b.nic); err != nil {
		t.Fatal(err)
	}
	const sent = 10
	for i := range uint32(sent) {
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(b.id), i, 100)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	if err := net.fabric.Attach(b.nic); err != nil {
		t.Fatal(err)
	}
	time.Sleep(defaultStallTime / 2)
	if s := a.Stats(); s.Port.TxAgain == 0 || s.TxStalls+s.TxStalled != 0 {
		t.Errorf("refused %d times, %d stalls, %d dropped", s.Port.TxAgain, s.TxStalls, s.TxStalled)
	}
	b.start(t)
	eventually(t, "the last frame", func() bool { return b.frames.Len() >= sent+cfg.Mailbox.Slots })
	got := slices.DeleteFunc(b.frames.Take(), func(f gotFrame) bool { return f.Src == c.id })
	checkNumbers(t, got, a.id, sent)
	a.checkBuffers(t)
}

// A node without any link is stopped until there is one, or until nobody is waited for any more.
func TestOnlyLinkComesBack(t *testing.T) { synctest.Test(t, testOnlyLinkComesBack) }

func testOnlyLinkComesBack(t *testing.T) {
	for _, size := range []int{100, 2000} {
		cfg := small()
		cfg.StallTime = 0 // the default
		net := startNet(t, 2, cfg)
		a, b := net.nodes[0], net.nodes[1]
		cut := func() (sent uint32) {
			t.Helper()
			if err := net.fabric.Detach(b.nic); err != nil {
				t.Fatal(err)
			}
			return a.feed(t, net.mac(b.id), 0, size)
		}
		sent := cut()
		time.Sleep(defaultAwayTime * 4 / 5)
		if !a.Stopped() {
			t.Fatal("a node without a link takes frames that it has to drop")
		}
		if err := net.fabric.Attach(b.nic); err != nil {
			t.Fatal(err)
		}
		<-a.ready
		eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(sent) })
		checkNumbers(t, b.frames.Take(), a.id, sent)
		if s := a.Stats(); s.TxStops != 1 || s.TxStalled != 0 {
			t.Errorf("%d stops, %d dropped", s.TxStops, s.TxStalled)
		}
		a.checkBuffers(t)

		sent = cut()
		time.Sleep(defaultAwayTime + time.Second)
		<-a.ready
		a.checkBuffers(t)
		if s := a.Stats(); s.TxStops != 2 || s.TxStalled != uint64(sent) {
			t.Errorf("%d stops, %d of %d dropped", s.TxStops, s.TxStalled, sent)
		}

		if err := net.fabric.Attach(b.nic); err != nil {
			t.Fatal(err)
		}
		cut()
		time.Sleep(defaultAwayTime / 2)
		c := net.add(cfg, nil)
		c.start(t)
		<-a.ready
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(c.id), 0, size)); err != nil {
			t.Errorf("to a new peer: %v", err)
		}
		eventually(t, "the frame", func() bool { return c.frames.Len() == 1 })
		time.Sleep(defaultAwayTime)
		a.checkBuffers(t)
	}
}

// The only peer may stand still for the time that one may be away: nobody else waits for it.
func TestOnlyPeerStopped(t *testing.T) { synctest.Test(t, testOnlyPeerStopped) }

func testOnlyPeerStopped(t *testing.T) {
	for _, size := range []int{100, 2000} {
		cfg := small()
		cfg.StallTime = 0 // the default
		net := newNet(t, 2, cfg)
		a, b := net.nodes[0], net.nodes[1]
		a.start(t)
		sent := a.feed(t, net.mac(b.id), 0, size)
		time.Sleep(defaultAwayTime * 4 / 5)
		if s := a.Stats(); !a.Stopped() || s.TxStalls+s.TxStalled != 0 {
			t.Fatalf("stopped: %v, %d stalls, %d dropped", a.Stopped(), s.TxStalls, s.TxStalled)
		}
		b.start(t)
		<-a.ready
		eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(sent) })
		checkNumbers(t, b.frames.Take(), a.id, sent)
		a.checkBuffers(t)
	}
}

// Frames that the last link had begun to carry, and that the peer has not read, come over the next
// one, before those that were sent later.
func TestLinkEndsUnread(t *testing.T) { synctest.Test(t, testLinkEndsUnread) }

func testLinkEndsUnread(t *testing.T) {
	net := newNet(t, 2, small())
	a, b := net.nodes[0], net.nodes[1]
	a.start(t)
	sent := uint32(0)
	for ; !a.Stopped(); sent++ {
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), sent, 2000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Microsecond) // so that it is known which was sent first
	}
	if err := errors.Join(net.fabric.Detach(b.nic), net.fabric.Attach(b.nic)); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	eventually(t, "the last frame", func() bool { return b.frames.Len() >= int(sent) })
	eventually(t, "an empty queue", func() bool { return a.backlog.Load() == 0 })
	checkNumbers(t, b.frames.Take(), a.id, sent)
	if s := a.Stats(); s.Port.TxNotRead == 0 || s.TxAway != uint64(sent) || s.TxStalled != 0 {
		t.Errorf("of %d frames %d were not read, %d waited, %d were dropped", sent, s.Port.TxNotRead, s.TxAway, s.TxStalled)
	}
	a.checkBuffers(t)
}

// What is sent while a peer has no mailbox comes when it has one again, as at the beginning of a
// link: the peer says a moment later which mailboxes it has.
func TestMailboxComesBack(t *testing.T) { synctest.Test(t, testMailboxComesBack) }

func testMailboxComesBack(t *testing.T) {
	net := newNet(t, 2, small())
	a, b := net.nodes[0], net.nodes[1]
	a.start(t)
	b.Close()
	const sent = 10
	for i := range uint32(sent) {
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), i, 100+900*int(i%2))); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	time.Sleep(time.Second)
	again := &testNode{id: b.id, nic: b.nic}
	cfg := small()
	cfg.NIC = b.cfg.NIC
	var err error
	if again.Interface, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	again.SetReceiver(again)
	again.start(t)
	eventually(t, "the last frame", func() bool { return again.frames.Len() >= sent })
	eventually(t, "an empty queue", func() bool { return a.backlog.Load() == 0 })
	checkNumbers(t, again.frames.Take(), a.id, sent)
	a.checkBuffers(t)
	again.down()
	again.Close()
}

// A link that ends and comes back at any moment loses no buffer, stops nobody for good, and changes
// no frame.
func TestLinkEndsUnderLoad(t *testing.T) {
	net := startNet(t, 2, small())
	a, b := net.nodes[0], net.nodes[1]
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			if net.fabric.Detach(b.nic) != nil || net.fabric.Attach(b.nic) != nil {
				t.Error("the link cannot be cut")
				return
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for i := range uint32(3000) {
				_ = a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), i, 100+int(i)%600)) // dropped: full
			}
		})
	}
	time.AfterFunc(300*time.Millisecond, func() { close(done) })
	wg.Wait()
	eventually(t, "empty queues", func() bool { return a.away.Load() == 0 && a.backlog.Load() == 0 && a.stopped.Load() == 0 })
	for _, f := range b.frames.Take() {
		if _, ok := number(f.Bytes); !ok {
			t.Fatal("a frame has wrong bytes")
		}
	}
	a.checkBuffers(t)
}

// Group frames of many goroutines, each longer than the credits, arrive whole
// and in one order, though each waits for credit in the middle.
func TestGroupOrder(t *testing.T) {
	cfg := small()
	cfg.Buffers = 256
	net := startNet(t, 4, cfg)
	a := net.nodes[0]
	const senders, each = 4, 12
	var wg sync.WaitGroup
	var next atomic.Uint32
	for range senders {
		wg.Go(func() {
			for range each {
				for a.Stopped() {
					time.Sleep(50 * time.Microsecond)
				}
				if err := a.TransmitCopy(exteth.Offload{}, a.frame(arp.Broadcast(), next.Add(1), 5000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	a.checkBuffers(t)
	var order []uint32
	for _, n := range net.nodes[1:] {
		eventually(t, "all group frames", func() bool { return n.Stats().Port.RxGroup == senders*each })
		for i, g := range n.frames.Take() {
			num, ok := number(g.Bytes)
			if !ok || len(g.Bytes) != 5000 {
				t.Fatalf("node %d: frame %d is mixed up", n.id, i)
			}
			if n == net.nodes[1] {
				order = append(order, num)
			} else if order[i] != num {
				t.Fatalf("node %d got frame %d where another got %d", n.id, num, order[i])
			}
		}
	}
}

// A member of the group that takes nothing delays the others for the stall time,
// once; then they get all frames, and it does when it takes them again.
func TestGroupStalledMember(t *testing.T) { synctest.Test(t, testGroupStalledMember) }

func testGroupStalledMember(t *testing.T) {
	cfg := small()
	cfg.StallTime = 10 * time.Millisecond
	net := newNet(t, 4, cfg)
	a, deaf := net.nodes[0], net.nodes[3]
	for _, n := range net.nodes[:3] {
		n.start(t)
	}
	const frames = 20
	for i := range uint32(frames) {
		for a.Stopped() {
			time.Sleep(50 * time.Microsecond)
		}
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(arp.Broadcast(), i, 3000)); err != nil {
			t.Fatal(err)
		}
	}
	a.checkBuffers(t)
	for _, n := range net.nodes[1:3] {
		eventually(t, "the group frames", func() bool { return n.Stats().Port.RxGroup == frames })
		checkNumbers(t, n.frames.Take(), a.id, frames)
	}
	s := a.Stats()
	if s.TxStalls == 0 || s.TxStalls > 3 || s.NIC.VELO.MulticastSkipped == 0 {
		t.Errorf("%d stalls, %d messages left out", s.TxStalls, s.NIC.VELO.MulticastSkipped)
	}
	deaf.start(t)
	eventually(t, "its mailbox is empty", func() bool { return deaf.Stats().NIC.VELO.Received == 16 })
	deaf.frames.Take()
	if err := a.TransmitCopy(exteth.Offload{}, a.frame(arp.Broadcast(), 0, 3000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it takes part again", func() bool { return len(deaf.frames.Take()) == 1 })
	a.checkBuffers(t)
}

// Close with frames in the queues, and the stall timer set, ends all.
func TestCloseWithBacklog(t *testing.T) {
	for range 20 {
		cfg := small()
		cfg.StallTime = time.Millisecond
		net := newNet(t, 2, cfg)
		a := net.nodes[0]
		a.start(t)
		for range 40 {
			err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 0, 100))
			if err != nil && !errors.Is(err, ErrStalled) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Millisecond) // about when the timer fires
		a.down()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

package fabrictest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/fabric"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// vpid is one that a program can have, too (nic.Attach).
const vpid = fabric.VPID(40)

// Suite runs the tests of what every link promises.
func Suite(t *testing.T, l Link) {
	for _, tt := range []struct {
		name  string
		f     func(*testing.T, Link)
		ports bool // holds of ports, too
	}{
		{"message", testMessage, true}, {"nobody", testNobody, true}, {"credit", testCredit, false},
		{"order", testOrder, true}, {"interrupts", testInterrupts, true}, {"full mailbox", testFullMailbox, true},
		{"multicast", testMulticast, false}, {"mailbox closed", testMailboxClosed, true},
		{"get and put", testTransfers, true}, {"refusals", testRefusals, true}, {"device", testDevice, true},
		{"overrun", testOverrun, false}, {"many transfers", testManyTransfers, true},
	} {
		if l.Ports && !tt.ports {
			continue
		}
		t.Run(tt.name, func(t *testing.T) { tt.f(t, l) })
	}
}

// scaledTo is how often a test repeats something: n times, or a tenth of it in the short form.
func scaledTo(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func descriptorOf(n fabric.NodeID) velo.Descriptor { return velo.Descriptor{Dst: n, VPID: vpid} }

// awaitReachable waits, on a Lazy link, until a mailbox that was opened is known to e.
func awaitReachable(t *testing.T, l Link, e *velo.Endpoint, n fabric.NodeID) {
	t.Helper()
	if l.Lazy {
		Eventually(t, "the mailbox is known", func() bool { return e.Credits(n, vpid) > 0 })
	}
}

// awaitMessage waits for a message and fails if it does not come.
func awaitMessage(t *testing.T, e *velo.Endpoint) (st velo.Status, p []byte) {
	t.Helper()
	Eventually(t, "message", func() (ok bool) { st, p, ok = e.Peek(); return ok })
	return st, p
}

func awaitNotification(t *testing.T, e *rma.Endpoint) (n rma.Notification) {
	t.Helper()
	Eventually(t, "notification", func() (ok bool) { n, ok = e.Next(); return ok })
	return n
}

func testMessage(t *testing.T, l Link) {
	nics := l.New(t, 2)
	x, y := OpenVELO(t, nics[0], vpid, velo.Config{}), OpenVELO(t, nics[1], vpid, velo.Config{})
	awaitReachable(t, l, x, 1)
	for _, n := range []int{1, 8, 119, 120} {
		msg := bytes.Repeat([]byte{byte(n)}, n)
		d := velo.Descriptor{Dst: 1, VPID: vpid, Tag: uint8(n), Type: uint8(n % 16)}
		if err := x.Send(d, msg); err != nil {
			t.Fatal(err)
		}
		clear(msg) // Send has copied
		st, p := awaitMessage(t, y)
		if want := (velo.Status{Src: 0, SrcVPID: vpid, Flow: st.Flow, Len: uint8(n), Tag: d.Tag, Type: d.Type}); st != want {
			t.Errorf("status %+v, want %+v", st, want)
		}
		if !bytes.Equal(p, bytes.Repeat([]byte{byte(n)}, n)) || cap(p) != n {
			t.Errorf("%d bytes: payload % x, capacity %d", n, p, cap(p))
		}
		y.Advance()
	}
}

func testNobody(t *testing.T, l Link) {
	nics := l.New(t, 2)
	x := OpenVELO(t, nics[0], vpid, velo.Config{})
	if err := x.Send(descriptorOf(1), []byte{1}); !errors.Is(err, fabric.ErrPeerDown) {
		t.Errorf("VPID not open: %v", err)
	}
	if err := x.Send(descriptorOf(9), []byte{1}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("no such node: %v", err)
	}
	if n := x.Credits(1, vpid); n != 0 {
		t.Errorf("%d credits for nobody", n)
	}
}

// A source has its credits and no more; OnCredit comes once, with half of them.
func testCredit(t *testing.T, l Link) {
	nics := l.New(t, 2)
	x, y := OpenVELO(t, nics[0], vpid, velo.Config{}), OpenVELO(t, nics[1], vpid, velo.Config{Slots: 64, Credits: 16})
	awaitReachable(t, l, x, 1)
	var woken atomic.Int64
	x.OnCredit(func(n fabric.NodeID) {
		if n != 1 {
			t.Errorf("credit of node %d", n)
		}
		woken.Add(1)
	})
	for round := range 20 {
		if n := x.Credits(1, vpid); n != 16 {
			t.Fatalf("round %d: %d credits", round, n)
		}
		for i := range 16 {
			if err := x.Send(descriptorOf(1), []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		woken.Store(0)
		for range 3 {
			if err := x.Send(descriptorOf(1), []byte{1}); !errors.Is(err, fabric.ErrAgain) {
				t.Fatalf("send without credit: %v", err)
			}
		}
		for i := range 16 {
			if _, p := awaitMessage(t, y); p[0] != byte(i) {
				t.Fatalf("message %d, want %d", p[0], i)
			}
			y.Advance()
		}
		y.Peek() // the batch of credits goes back now
		Eventually(t, "OnCredit", func() bool { return woken.Load() > 0 })
		if n := woken.Load(); n != 1 {
			t.Errorf("OnCredit was called %d times", n)
		}
		Eventually(t, "credits", func() bool { return x.Credits(1, vpid) == 16 })
		if ok, err := x.WantCredits(1, vpid, 16); !ok || err != nil {
			t.Errorf("WantCredits: %v, %v", ok, err)
		}
	}
}

// sendNumbered sends numbered messages, and waits for OnCredit when it has to.
func sendNumbered(t *testing.T, e *velo.Endpoint, d velo.Descriptor, credit <-chan struct{}, id byte, each int) {
	msg := make([]byte, 24)
	for seq := range uint64(each) {
		msg[0] = id
		binary.LittleEndian.PutUint64(msg[8:], seq)
		binary.LittleEndian.PutUint64(msg[16:], seq*0x9e3779b97f4a7c15)
		for {
			err := e.Send(d, msg)
			if err == nil {
				break
			}
			if !errors.Is(err, fabric.ErrAgain) {
				t.Error(err)
				return
			}
			<-credit
		}
	}
}

// wakeSenders has OnCredit wake n senders.
func wakeSenders(e *velo.Endpoint, n int) <-chan struct{} {
	c := make(chan struct{}, n)
	e.OnCredit(func(fabric.NodeID) {
		for range n {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	})
	return c
}

// reader checks the messages of several senders.
type reader struct {
	next  map[[2]uint16]uint64
	total int
}

func (r *reader) readNumbered(t *testing.T, st velo.Status, p []byte) {
	t.Helper()
	if r.next == nil {
		r.next = make(map[[2]uint16]uint64)
	}
	id := [2]uint16{uint16(st.Src), uint16(p[0])}
	seq := binary.LittleEndian.Uint64(p[8:])
	if seq != r.next[id] || binary.LittleEndian.Uint64(p[16:]) != seq*0x9e3779b97f4a7c15 {
		t.Fatalf("sender %v: message %d, want %d", id, seq, r.next[id])
	}
	r.next[id]++
	r.total++
}

// Goroutines on several nodes send to a consumer that polls.
func testOrder(t *testing.T, l Link) {
	const nodes, perNode = 3, 2
	each := scaledTo(4000)
	nics := l.New(t, nodes+1)
	dst := OpenVELO(t, nics[nodes], vpid, velo.Config{Slots: 256, Credits: 32})
	var wg sync.WaitGroup
	for i := range nodes {
		e := OpenVELO(t, nics[i], vpid, velo.Config{})
		awaitReachable(t, l, e, nodes)
		c := wakeSenders(e, perNode)
		for g := range perNode {
			wg.Go(func() { sendNumbered(t, e, descriptorOf(nodes), c, byte(g), each) })
		}
	}
	var r reader
	for r.total < nodes*perNode*each {
		st, p := awaitMessage(t, dst)
		r.readNumbered(t, st, p)
		dst.Advance()
	}
	wg.Wait()
	if _, _, ok := dst.Peek(); ok {
		t.Error("one message too many")
	}
}

// The same with a consumer that sleeps until it is interrupted: no wake-up is
// lost, on either side.
func testInterrupts(t *testing.T, l Link) {
	each := scaledTo(20000)
	nics := l.New(t, 2)
	x, y := OpenVELO(t, nics[0], vpid, velo.Config{}), OpenVELO(t, nics[1], vpid, velo.Config{Slots: 64, Credits: 8})
	awaitReachable(t, l, x, 1)
	irq := make(chan struct{}, 1)
	y.OnInterrupt(func() {
		select {
		case irq <- struct{}{}:
		default:
		}
	})
	c := wakeSenders(x, 1)
	go sendNumbered(t, x, descriptorOf(1), c, 0, each)
	var r reader
	for r.total < each {
		st, p, ok := y.Peek()
		if !ok {
			if !y.EnableInterrupt() {
				<-irq
			}
			y.DisableInterrupt()
			continue
		}
		r.readNumbered(t, st, p)
		y.Advance()
	}
	if y.EnableInterrupt() {
		t.Error("one message too many")
	}
}

// More sources than the mailbox has room for: everything arrives nevertheless.
func testFullMailbox(t *testing.T, l Link) {
	const nodes = 4
	each := scaledTo(2000)
	nics := l.New(t, nodes+1)
	dst := OpenVELO(t, nics[nodes], vpid, velo.Config{Slots: 8, Credits: 8})
	var wg sync.WaitGroup
	for i := range nodes {
		e := OpenVELO(t, nics[i], vpid, velo.Config{})
		awaitReachable(t, l, e, nodes)
		c := wakeSenders(e, 1)
		wg.Go(func() { sendNumbered(t, e, descriptorOf(nodes), c, 0, each) })
	}
	var r reader
	for r.total < nodes*each {
		st, p := awaitMessage(t, dst)
		r.readNumbered(t, st, p)
		dst.Advance()
	}
	wg.Wait()
}

func testMulticast(t *testing.T, l Link) {
	nics := l.New(t, 4)
	x := OpenVELO(t, nics[0], vpid, velo.Config{})
	eps := []*velo.Endpoint{OpenVELO(t, nics[1], vpid, velo.Config{}), OpenVELO(t, nics[2], vpid, velo.Config{Slots: 2, Credits: 2})}
	awaitReachable(t, l, x, 1)
	awaitReachable(t, l, x, 2)
	d := velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}
	for i := range byte(2) {
		if err := x.SendMulticast(d, []byte{i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.SendMulticast(d, []byte{9}); !errors.Is(err, fabric.ErrAgain) {
		t.Errorf("a member without credit: %v", err)
	}
	if n, err := x.SendMulticastSkip(d, []byte{2}); n != 1 || err != nil {
		t.Errorf("skipped %d, %v", n, err)
	}
	for i, e := range eps {
		for want := range byte(3 - i) {
			st, p := awaitMessage(t, e)
			if !st.Multicast || st.Src != 0 || p[0] != want {
				t.Errorf("member %d: %+v, %d, want %d", i, st, p[0], want)
			}
			e.Advance()
		}
	}
	if s := x.Stats(); s.MulticastAbsent == 0 {
		t.Error("node 3, where nobody is, was not counted")
	}
}

func testMailboxClosed(t *testing.T, l Link) {
	nics := l.New(t, 2)
	x, y := OpenVELO(t, nics[0], vpid, velo.Config{}), OpenVELO(t, nics[1], vpid, velo.Config{Slots: 4})
	awaitReachable(t, l, x, 1)
	c := wakeSenders(x, 1)
	for x.Send(descriptorOf(1), []byte{1}) == nil {
	}
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	<-c
	Eventually(t, "ErrPeerDown", func() bool { return errors.Is(x.Send(descriptorOf(1), []byte{1}), fabric.ErrPeerDown) })
	y = OpenVELO(t, nics[1], vpid, velo.Config{}) // a successor
	Eventually(t, "send to the successor", func() bool { return x.Send(descriptorOf(1), []byte{2}) == nil })
	if _, p := awaitMessage(t, y); p[0] != 2 {
		t.Errorf("got %d", p[0])
	}
}

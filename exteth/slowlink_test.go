package exteth

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// slowLink completes GETs when the test says so, in a goroutine of its own and
// in pieces of one RMA packet. It is what package link allows a link to do, and
// the mem link does not.
type slowLink struct {
	order func(pieces int) []int // order of the pieces; nil: as they come

	mu   sync.Mutex
	held []*heldGet // guarded by mu
}

// heldGet is a GET whose request was served, and whose data is on its way.
type heldGet struct {
	sink   link.Sink
	data   []byte
	status fabric.Status
}

// Data and Done take in the response on the far side.
func (g *heldGet) Data(off int, p foreign.Memory) error {
	g.data = p.AppendTo(g.data[:off])
	return nil
}
func (g *heldGet) Done(s fabric.Status) { g.status = s }

type slowPort struct {
	link.Port
	link *slowLink
}

func (l *slowLink) wrap(p link.Port) link.Port { return slowPort{p, l} }

func (p slowPort) Get(g link.Get, s link.Sink) {
	h := &heldGet{sink: s}
	p.Port.Get(g, h)
	p.link.mu.Lock()
	p.link.held = append(p.link.held, h)
	p.link.mu.Unlock()
}

// waiting is the number of GETs under way.
func (l *slowLink) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// complete brings the data of the oldest n GETs, at the same time.
func (l *slowLink) complete(n int) {
	l.mu.Lock()
	batch := l.held[:n]
	l.held = append([]*heldGet(nil), l.held[n:]...)
	l.mu.Unlock()
	var wg sync.WaitGroup
	for _, h := range batch {
		wg.Go(func() { h.finish(l.order) })
	}
	wg.Wait()
}

func (g *heldGet) finish(order func(int) []int) {
	pieces := (len(g.data) + rma.MTU - 1) / rma.MTU
	list := make([]int, pieces)
	for i := range list {
		list[i] = i
	}
	if order != nil {
		list = order(pieces)
	}
	for _, i := range list {
		piece := g.data[i*rma.MTU : min((i+1)*rma.MTU, len(g.data))]
		if g.sink.Data(i*rma.MTU, foreign.Of(bytes.Clone(piece))) != nil {
			break
		}
	}
	g.sink.Done(g.status)
}

// slowNet is a fabric whose last node fetches over a slow link.
func slowNet(t *testing.T, nodes int, cfg Config, l *slowLink) (*testNet, *testNode) {
	net := newNet(t, nodes, cfg)
	return net, net.add(cfg, l.wrap)
}

// VELO overtakes RMA: an eager frame that was sent after a rendezvous frame
// arrives first where GETs take their time.
func TestOvertaking(t *testing.T) {
	l := new(slowLink)
	net, b := slowNet(t, 1, Config{}, l)
	a := net.nodes[0]
	first, second := a.buf(t, 9000), a.buf(t, 100)
	large, small := bytes.Clone(first.Frame()), bytes.Clone(second.Frame())
	for _, buf := range []*TxBuffer{first, second} {
		if err := a.Send(b.id, buf); err != nil {
			t.Fatal(err)
		}
	}
	net.settle()
	if l.waiting() != 1 {
		t.Fatalf("%d GETs are under way", l.waiting())
	}
	checkFrames(t, b.frames.Take(), a.id, small)
	l.complete(1)
	net.settle()
	checkFrames(t, b.frames.Take(), a.id, large)
	net.checkIdle()
}

// Frames come whole, whatever the order of their pieces and of their GETs.
func TestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, tt := range []struct {
		name  string
		order func(int) []int
	}{
		{"order=sent", nil},
		{"order=reverse", func(n int) []int {
			list := make([]int, n)
			for i := range list {
				list[i] = n - 1 - i
			}
			return list
		}},
		{"order=random", func(n int) []int { return rand.New(rand.NewPCG(uint64(n), 1)).Perm(n) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &slowLink{order: tt.order}
			net, b := slowNet(t, 1, Config{EagerThreshold: MinEagerThreshold}, l)
			a := net.nodes[0]
			want := make(map[string]bool)
			for _, size := range sizes() {
				if size <= MinEagerThreshold {
					continue
				}
				buf := a.buf(t, size)
				want[digest(buf.Frame())] = true
				if err := a.Send(b.id, buf); err != nil {
					t.Fatal(err)
				}
				net.settle()
				if n := l.waiting(); n > 4 {
					l.complete(1 + rng.IntN(n))
				}
			}
			l.complete(l.waiting())
			net.settle()
			got := b.frames.Take()
			for _, g := range got {
				if !want[digest(g.Bytes)] {
					t.Errorf("%v was not sent", digest(g.Bytes))
				}
				delete(want, digest(g.Bytes))
			}
			if len(want) != 0 {
				t.Errorf("%d frames are missing", len(want))
			}
			if s := b.Stats(); s.RxGetFailed+s.Unmatched+s.RxRefused != 0 {
				t.Errorf("%d failed, %d unmatched, %d refused", s.RxGetFailed, s.Unmatched, s.RxRefused)
			}
			net.checkIdle()
		})
	}
}

// A GET that fails on the way is counted, and its window free again.
func TestLinkFailure(t *testing.T) {
	l := new(slowLink)
	net, b := slowNet(t, 1, Config{}, l)
	a := net.nodes[0]
	for range 4 {
		if err := a.Send(b.id, a.buf(t, 2000)); err != nil {
			t.Fatal(err)
		}
	}
	net.settle()
	l.mu.Lock()
	l.held[0].status, l.held[0].data = fabric.StatusPeerDown, nil
	l.held[1].data = l.held[1].data[:1999] // a byte short
	l.held[2].data = l.held[2].data[:496]  // and then the link is gone
	l.held[2].status = fabric.StatusPeerDown
	l.mu.Unlock()
	l.complete(4)
	net.settle()
	if got := len(b.frames.Take()); got != 1 {
		t.Errorf("%d frames, want 1", got)
	}
	checkStats(t, b.Stats(), map[string]uint64{"rx_rendezvous": 1, "rx_bytes": 2000, "rx_get_failed": 3})
	net.checkIdle()
}

// When the transfers are used up the rest of the mailbox waits, and goes on by
// OnWork when some are free again. Nothing is lost.
func TestStarved(t *testing.T) {
	l := new(slowLink)
	net, b := slowNet(t, 5, Config{}, l)
	want := make(map[fabric.NodeID][][]byte)
	for _, n := range net.nodes[:5] {
		for range 32 {
			buf := n.buf(t, 600)
			want[n.id] = append(want[n.id], bytes.Clone(buf.Frame()))
			if err := n.Send(b.id, buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	net.settle()
	if l.waiting() != MaxTransfers || !b.Starved() {
		t.Fatalf("%d GETs under way, starved %v", l.waiting(), b.Starved())
	}
	if messages, _ := b.PollVELO(64); messages != 0 || b.work != 0 {
		t.Errorf("%d messages handled without a transfer, OnWork called %d times", messages, b.work)
	}
	l.complete(1)
	b.PollRMA(64)
	if b.work != 1 || b.Starved() {
		t.Errorf("a transfer is free: OnWork was called %d times, starved %v", b.work, b.Starved())
	}
	for l.waiting() > 0 {
		l.complete(min(7, l.waiting()))
		net.settle()
	}
	got := make(map[fabric.NodeID][]gotFrame)
	for _, g := range b.frames.Take() {
		got[g.Src] = append(got[g.Src], g)
	}
	for _, n := range net.nodes[:5] {
		if len(got[n.id]) != len(want[n.id]) {
			t.Errorf("%d frames of node %d, want %d", len(got[n.id]), n.id, len(want[n.id]))
		}
	}
	if b.work < 2 || b.Stats().RxNoTransfer == 0 {
		t.Errorf("OnWork was called %d times, %d adverts waited", b.work, b.Stats().RxNoTransfer)
	}
	net.checkIdle()
}

// A peer whose GETs do not end costs only its own traffic: it does not keep
// the messages of others waiting behind its own.
func TestStandingGets(t *testing.T) {
	l := new(slowLink)
	net, b := slowNet(t, 1, Config{}, l)
	a, raw := net.nodes[0], net.addRaw()
	_, loan := raw.region(make([]byte, 1000), b.id)
	for range 40 {
		raw.send(b.id, rawAdvert(loan, 1000, Offload{}))
	}
	net.settle()
	if got := l.waiting(); got != maxPeerTransfers {
		t.Errorf("%d GETs with one peer, want %d", got, maxPeerTransfers)
	}
	for _, size := range []int{100, 1000} {
		buf := a.buf(t, size)
		want := bytes.Clone(buf.Frame())
		if err := a.Send(b.id, buf); err != nil {
			t.Fatal(err)
		}
		net.settle()
		l.completeOf(want)
		net.settle()
		checkFrames(t, b.frames.Take(), a.id, want)
	}
	for range 200 - 40 {
		raw.send(b.id, rawAdvert(loan, 1000, Offload{}))
		net.settle()
	}
	if got, want := b.Stats().RxExcess, uint64(200-maxPeerTransfers-maxPeerLoans); got != want {
		t.Errorf("%d adverts were dropped, want %d", got, want)
	}
	for l.waiting() > 0 {
		l.complete(l.waiting())
		net.settle()
	}
	if got := len(b.frames.Take()); got != maxPeerTransfers+maxPeerLoans {
		t.Errorf("%d frames of the slow peer, want %d", got, maxPeerTransfers+maxPeerLoans)
	}
	net.checkIdle()
}

// The adverts of a peer that wait for its GETs to end are fetched in the order in which they came.
func TestWaitingInOrder(t *testing.T) {
	l := new(slowLink)
	net, b := slowNet(t, 0, Config{}, l)
	raw := net.addRaw()
	var want [][]byte
	for i := range maxPeerTransfers + 8 {
		frame := bytes.Repeat([]byte{byte(i)}, 1000)
		_, loan := raw.region(frame, b.id)
		raw.send(b.id, rawAdvert(loan, uint32(len(frame)), Offload{}))
		want = append(want, frame)
	}
	net.settle()
	for l.waiting() > 0 {
		l.complete(1)
		net.settle()
	}
	checkFrames(t, b.frames.Take(), raw.id, want...)
	net.checkIdle()
}

// completeOf brings the data of the GET that fetches frame, if there is one.
func (l *slowLink) completeOf(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, h := range l.held {
		if bytes.Equal(h.data, frame) {
			l.held = append(l.held[:i:i], l.held[i+1:]...)
			h.finish(nil)
			return
		}
	}
}

// Close waits for the GETs that a link still has under way.
func TestCloseWithGets(t *testing.T) {
	l := new(slowLink)
	net, b := slowNet(t, 1, Config{}, l)
	a := net.nodes[0]
	if err := a.Send(b.id, a.buf(t, 1000)); err != nil {
		t.Fatal(err)
	}
	net.settle()
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	select {
	case <-closed:
		t.Fatal("closed while a GET is under way")
	case <-time.After(10 * time.Millisecond):
	}
	l.complete(1)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

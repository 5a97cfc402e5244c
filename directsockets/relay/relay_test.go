package relay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/internal/foreigntest"
)

// pattern is n bytes that tell where they belong.
func pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(p)
	return p
}

// Bytes of all sizes go both ways, and the end of each direction comes after them.
func TestBothWays(t *testing.T) {
	for _, size := range []segment.Config{{}, {Slots: 16, Ring: 64 << 10}} {
		hosts, client, server := pair(t, size, nil)
		var wg sync.WaitGroup
		alone := false
		for i, ends := range [][2]*segment.End{{client, server}, {server, client}} {
			data := pattern(uint64(i), 3<<20)
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 1<<r.IntN(19))
					if err := send(t, ends[0], rest[:n], alone); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				for errors.Is(ends[0].Shutdown(), segment.ErrAgain) {
					wait(t, ends[0], false, alone)
				}
			})
			wg.Go(func() {
				got, err := receive(t, ends[1], len(data), alone)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("direction %d: %v, equal %v", i, err, bytes.Equal(got, data))
				}
				if err := end(t, ends[1], alone); err != io.EOF {
					t.Errorf("direction %d ends with %v", i, err)
				}
			})
		}
		wg.Wait()
		a, b := hosts[0].engine.Stats(), hosts[1].engine.Stats()
		if a.BytesSent != 3<<20 || b.BytesReceived != 3<<20 || b.BytesSent != 3<<20 || a.Attached != 1 || b.Attached != 1 || a.Breaches+b.Breaches != 0 {
			t.Errorf("%+v\n%+v", a, b)
		}
	}
}

// A program that changes each byte as soon as it was read changes nothing of what the far one
// gets: messages, and the data in its ring, which the NIC reads.
func TestReadOnce(t *testing.T) {
	for _, n := range []int{100, 480, 5000, 200_000} {
		_, client, server := pair(t, segment.Config{}, nil)
		reads := foreigntest.Watch(t, foreigntest.Flip)
		data := pattern(uint64(n), n)
		if err := send(t, client, data, true); err != nil {
			t.Fatal(err)
		}
		got, err := receive(t, server, n, true)
		reads.Stop()
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %v, others came", n, err)
		}
		// Of much data, a place is written again: then only what arrives tells a second read.
		if read, again := reads.Bytes(); read < n || (again != 0 && n < placeLen) {
			t.Errorf("%d bytes: %d read, %d of them again", n, read, again)
		}
	}
}

// Nothing is given back before the far program has consumed it.
func TestGivenBackWhenConsumed(t *testing.T) {
	_, client, server := pair(t, segment.Config{Slots: 16, Ring: 64 << 10}, nil)
	n := 0
	for { // until nothing fits any more, wherever it is
		k, err := client.Send(make([]byte, 1000))
		n += k
		if errors.Is(err, segment.ErrAgain) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if limit := 16 * 4096; n > limit {
		t.Errorf("%d bytes fit although nobody reads; the segment has room for %d", n, limit)
	}
	if _, err := receive(t, server, n, true); err != nil {
		t.Fatal(err)
	}
	if err := send(t, client, make([]byte, 1000), true); err != nil {
		t.Fatal(err)
	}
}

// A receiver that falls back at any byte has the rest returned to the sender's shadow.
func TestFallBack(t *testing.T) {
	for _, at := range []int{0, 1, 119, 120, 121, 480, 481, 700, 5000, 70_000, 99_999} {
		_, client, server := pair(t, segment.Config{}, nil)
		data := pattern(uint64(at), 100_000)
		for _, p := range [][]byte{data[:120], data[120:480], data[480:1000], data[1000:]} {
			if err := send(t, client, p, true); err != nil {
				t.Fatal(err)
			}
		}
		got, err := receive(t, server, at, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := server.FallBack(); err != nil {
			t.Fatal(err)
		}
		until(t, "fallen back", client.FallenBack)
		if err := client.ReturnToTCP(func(p []byte) (int, error) {
			got = append(got, p...)
			return len(p), nil
		}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("fallen back at %d: %d bytes, or others", at, len(got))
		}
		until(t, "returned", server.PeerReturned)
	}
}

// Whatever was sent, in messages of any size, and wherever the receiver falls back, the shadow gets
// what it has not taken, and nothing else. A node that claims that messages were consumed
// before they were is found out.
func TestFallBackAnywhere(t *testing.T) {
	for seed := range uint64(24) {
		if got, data, err := fallbackAt(t, seed, false); err != nil || !bytes.Equal(got, data) {
			t.Errorf("seed %d: %d bytes of %d, or others: %v", seed, len(got), len(data), err)
		}
	}
	for seed := range uint64(4) {
		if got, data, err := fallbackAt(t, seed, true); err == nil && bytes.Equal(got, data) {
			t.Errorf("seed %d: consumed too early, and nobody has noticed", seed)
		}
	}
}

// fallbackAt has a receiver fall back at a byte that follows from the seed, and returns what came
// to it, the shadow's bytes included, and what was sent. early: its node says before that all
// messages were consumed.
func fallbackAt(t *testing.T, seed uint64, early bool) (got, data []byte, err error) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	r := rand.New(rand.NewPCG(seed, 7))
	for range 24 { // they fit into queue and ring
		p := pattern(r.Uint64(), 1+r.IntN(1<<r.IntN(16)))
		if err := send(t, client, p, true); err != nil {
			t.Fatal(err)
		}
		data = append(data, p...)
	}
	if got, err = receive(t, server, r.IntN(len(data)), true); err != nil {
		t.Fatal(err)
	}
	if early {
		until(t, "all messages", func() bool { return hosts[1].engine.Stats().BytesReceived == uint64(len(data)) })
		hosts[1].giveBackEarly(t)
	}
	if err := server.FallBack(); err != nil {
		t.Fatal(err)
	}
	until(t, "fallen back, or an end", func() bool { return client.FallenBack() || client.Err() != nil })
	if err := client.Err(); err != nil {
		return got, data, err
	}
	err = client.ReturnToTCP(func(p []byte) (int, error) {
		got = append(got, p...)
		return len(p), nil
	})
	return got, data, err
}

// giveBackEarly has the node tell the far one that its programs have consumed all messages.
func (h *host) giveBackEarly(t *testing.T) {
	t.Helper()
	e, done := h.engine, make(chan struct{})
	if err := e.doLater(func() {
		defer close(done)
		for _, c := range e.conns {
			c.gave.consumed = e.Stats().MessagesReceived
			if !e.sendMessage(c, kindBack, c.gave.append(nil)) {
				t.Error("no room")
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-done
}

// A sender that goes back to its shadow is followed after all that it has sent.
func TestDemote(t *testing.T) {
	_, client, server := pair(t, segment.Config{}, nil)
	if err := send(t, server, pattern(1, 5000), true); err != nil {
		t.Fatal(err)
	}
	if err := server.Demote(); err != nil {
		t.Fatal(err)
	}
	if _, err := receive(t, client, 5000, true); err != nil {
		t.Fatal(err)
	}
	if err := end(t, client, true); !errors.Is(err, segment.ErrDemoted) {
		t.Error(err)
	}
}

// A program that closes, or is killed, has closed at the other end, after what it sent;
// one that resets has reset.
func TestClose(t *testing.T) {
	for _, reset := range []bool{false, true} {
		hosts, client, server := pair(t, segment.Config{}, nil)
		if err := send(t, client, pattern(3, 200_000), true); err != nil {
			t.Fatal(err)
		}
		_ = client.Close(reset)
		got, err := receive(t, server, 200_000, true)
		if err != nil || !bytes.Equal(got, pattern(3, 200_000)) {
			t.Errorf("after close: %d bytes, %v", len(got), err)
		}
		want := segment.ErrClosed
		if reset {
			want = segment.ErrReset
		}
		if err := end(t, server, true); !errors.Is(err, want) {
			t.Errorf("closed with reset %v: %v", reset, err)
		}
		for _, h := range hosts {
			until(t, "forgotten", func() bool { return h.count() == 0 })
		}
	}
}

// count is how many connections an Engine has.
func (h *host) count() int {
	n := make(chan int, 1)
	if h.engine.doLater(func() { n <- len(h.engine.conns) }) != nil {
		return 0
	}
	return <-n
}

// regions is how many regions are registered, but those for batches, which a node has until the
// link to it ends.
func (h *host) regions() uint64 {
	n := make(chan uint64, 1)
	if h.engine.doLater(func() {
		kept := uint64(0)
		for _, p := range h.engine.nodes {
			for _, ch := range p.channels {
				if ch != nil && ch.region != nil {
					kept++
				}
				if ch != nil && ch.stage.region != nil {
					kept++
				}
			}
		}
		n <- h.nic.ATU().Stats().Regions - kept
	}) != nil {
		return h.nic.ATU().Stats().Regions
	}
	return <-n
}

// When a node ends, or its link, both programs get a reset.
func TestNodeGone(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	if err := send(t, client, pattern(3, 1000), true); err != nil {
		t.Fatal(err)
	}
	if _, err := receive(t, server, 1000, true); err != nil {
		t.Fatal(err)
	}
	hosts[1].stop()
	if err := end(t, server, true); !errors.Is(err, segment.ErrReset) {
		t.Errorf("program of the node that ended: %v", err)
	}
	hosts[0].nic.Disconnect(2)
	hosts[0].engine.PeerDown(2)
	if err := end(t, client, true); !errors.Is(err, segment.ErrReset) {
		t.Errorf("program of the other node: %v", err)
	}
	until(t, "regions given back", func() bool { return hosts[0].regions() == 0 && hosts[1].regions() == 0 })
}

// Who does not take an offer, or takes it back, leaves nothing behind.
func TestOfferEnds(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	client := hosts[0].call(t, hosts[1], segment.Config{})
	o := <-hosts[1].offers
	o.close(t) // the broker has found nobody for it
	until(t, "refused", func() bool { client.Awake(); return client.Err() != nil })
	if client.PeerState() != segment.StateNone {
		t.Error("refused for good")
	}

	client = hosts[0].call(t, hosts[1], segment.Config{})
	o = <-hosts[1].offers
	_ = client.Close(false)
	o.close(t)
	for _, h := range hosts {
		until(t, "forgotten", func() bool { return h.count() == 0 && h.regions() == 0 })
	}
}

// A server's program that takes what its client has taken back meanwhile goes back to its
// shadow, and has sent nothing in the segment.
func TestOrphan(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	client := hosts[0].call(t, hosts[1], segment.Config{})
	o := <-hosts[1].offers
	hosts[1].offers <- o
	_ = client.Close(false)
	until(t, "forgotten", func() bool { return hosts[0].count() == 0 })
	server := hosts[1].answer(t)
	for server.Err() == nil {
		if err := server.Promote(0); err == nil {
			t.Fatal("it may send")
		}
		server.Awake()
	}
	if server.Lost() {
		t.Error("it is reset")
	}
	_ = server.Close(false)
	until(t, "forgotten", func() bool { return hosts[1].count() == 0 && hosts[1].regions() == 0 })
}

// returns checks that an end falls back, and that data, all that it has sent, comes back.
func returns(t *testing.T, server *segment.End, data []byte) {
	t.Helper()
	until(t, "fallen back", server.FallenBack)
	var got []byte
	if err := server.ReturnToTCP(func(p []byte) (int, error) {
		got = append(got, p...)
		return len(p), nil
	}); err != nil || !bytes.Equal(got, data) {
		t.Errorf("returned to TCP %d bytes of %d: %v", len(got), len(data), err)
	}
}

// A segment that the server's program does not want is refused for good.
func TestRefused(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	client := hosts[0].call(t, hosts[1], segment.Config{})
	server := hosts[1].answerWith(t, (*segment.End).Withdraw)
	_ = server.Close(false)
	until(t, "refused", func() bool { client.Awake(); return client.Err() != nil })
	if client.PeerState() != segment.StateWithdrawn {
		t.Error("it may be offered again")
	}
}

// There are no more connections to a node than there may be, and none that are too large.
func TestLimits(t *testing.T) {
	hosts := newHosts(t, 2, func(c *Config) { c.MaxConns = 2 })
	for range 2 {
		hosts[0].call(t, hosts[1], segment.Config{})
		(<-hosts[1].offers).close(t)
	}
	until(t, "forgotten", func() bool { return hosts[0].count() == 0 && hosts[1].count() == 0 })
	for range 2 {
		hosts[0].call(t, hosts[1], segment.Config{})
		o := <-hosts[1].offers
		defer o.close(t)
	}
	third := newAgain(t)
	if err := third.tryOffer(t, hosts[0], hosts[1]); !errors.Is(err, ErrTooMany) {
		t.Errorf("the third: %v", err)
	}
	if hosts[0].count() != 2 {
		t.Error("more, or fewer")
	}
}

// Brokers hear what others say, whole and in order.
func TestNotes(t *testing.T) {
	hosts := newHosts(t, 3, nil)
	var want []string
	for i := range 300 {
		note := string(pattern(uint64(i), 1+i*5))
		want = append(want, note)
		if err := hosts[0].engine.Send(2, []byte(note)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "heard", func() bool { return len(hosts[1].heard()) == len(want) })
	for i, note := range hosts[1].heard() {
		if note != want[i] {
			t.Fatalf("note %d of %d bytes is another one", i, len(note))
		}
	}
	if len(hosts[2].heard()) > 0 {
		t.Error("heard by another node")
	}
}

// again is a client's segment and side 1's doorbell, which it keeps to offer them again.
type again struct {
	seg  *segment.Segment
	bell int
	end  *segment.End
}

func newAgain(t *testing.T) *again {
	t.Helper()
	seg, err := segment.Create(segment.Info{Nonce: segment.NewNonce(), Client: clientAddr, Server: serverAddr}, segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, err := segment.NewEnd(seg, segment.Client, bells[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end.Close(false); _ = unix.Close(bells[1]); seg.Retire() })
	return &again{seg, bells[1], end}
}

// offer offers them, once more.
func (a *again) offer(t *testing.T, h, to *host) {
	t.Helper()
	if err := a.tryOffer(t, h, to); err != nil {
		t.Fatal(err)
	}
}

func (a *again) tryOffer(t *testing.T, h, to *host) error {
	t.Helper()
	var fds [2]int
	for i, fd := range []int{a.seg.Fd(), a.bell} {
		var err error
		if fds[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}
	return h.engine.Offer(to.nic.ID(), 7, false, fds[0], fds[1])
}

// works has data go both ways.
func (a *again) works(t *testing.T, server *segment.End) {
	t.Helper()
	until(t, "attached", a.end.Attached)
	for _, ends := range [][2]*segment.End{{a.end, server}, {server, a.end}} {
		promotes(t, ends[0], 0)
		until(t, "promoted", func() bool { _, ok := ends[1].PromotedAt(); return ok })
		if err := send(t, ends[0], []byte("hello"), true); err != nil {
			t.Fatal(err)
		}
		if p, err := receive(t, ends[1], 5, true); err != nil || string(p) != "hello" {
			t.Fatalf("received %q: %v", p, err)
		}
	}
}

// A client that has kept its segment and side 1's doorbell offers them again, after the server's
// broker has found nobody for them.
func TestOfferedAgain(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	client := newAgain(t)
	for range 3 {
		client.offer(t, hosts[0], hosts[1])
		o := <-hosts[1].offers
		o.close(t) // the broker has found nobody for it
		for _, h := range hosts {
			until(t, "forgotten", func() bool { return h.count() == 0 && h.regions() == 0 })
		}
		if client.end.Awake(); client.end.Err() != nil {
			t.Fatalf("its segment is of no use any more: %v", client.end.Err())
		}
	}
	client.offer(t, hosts[0], hosts[1])
	client.works(t, hosts[1].answer(t))
}

// A segment that is offered again before its node knows that it was not taken has one connection,
// the last one.
func TestOfferedTwice(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	client := newAgain(t)
	client.offer(t, hosts[0], hosts[1])
	first := <-hosts[1].offers
	client.offer(t, hosts[0], hosts[1])
	server := hosts[1].answer(t)
	if n := hosts[0].count(); n != 1 {
		t.Errorf("the client's node has %d connections", n)
	}
	first.close(t)
	until(t, "declined", func() bool { return hosts[1].count() == 1 })
	client.works(t, server)
}

// A segment that is offered again just when its server has attached stays as it is: nothing says
// anything else at the node's side of it, and an end on the shadow comes after the data.
func TestOfferedAttached(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	partners(hosts)
	client := newAgain(t)
	client.offer(t, hosts[0], hosts[1])
	server := hosts[1].answer(t)
	client.works(t, server)
	if err := client.tryOffer(t, hosts[0], hosts[1]); !errors.Is(err, ErrAttached) {
		t.Errorf("offered again: %v", err)
	}
	select {
	case o := <-hosts[1].offers:
		o.close(t)
		t.Error("the server's host has got it twice")
	default:
	}
	if n := hosts[0].count(); n != 1 || !client.end.MayPause() {
		t.Errorf("the client's node has %d connections; it may pause: %v", n, client.end.MayPause())
	}
	if err := send(t, client.end, pattern(1, 1000), true); err != nil {
		t.Fatal(err)
	}
	if g, _ := hosts[0].engine.Gate(packet4(clientAddr, serverAddr, 0x11, 0)); g == nil {
		t.Error("an end does not wait for the data")
	}
	if _, err := receive(t, server, 1000, true); err != nil {
		t.Fatal(err)
	}
}

// Of two offers of one segment at once, one is carried.
func TestOfferedAtOnce(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	partners(hosts)
	client := newAgain(t)
	done := make(chan error)
	for range 2 {
		go func() { done <- client.tryOffer(t, hosts[0], hosts[1]) }()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := hosts[0].count(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

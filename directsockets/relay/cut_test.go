package relay

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
)

// cutHosts makes two nodes, and what takes their link away and brings it back.
func cutHosts(t *testing.T, change func(*Config)) (hosts []*host, cut, back func()) {
	t.Helper()
	f := mem.NewFabric()
	for i := range 2 {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Attach(card); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, newHost(t, card, change))
		hosts[i].fabric = f
	}
	cut = func() {
		if err := f.Detach(hosts[1].nic); err != nil {
			t.Error(err)
		}
		for i, h := range hosts {
			h.engine.PeerDown(fabric.NodeID(2 - i))
			until(t, "its connections are suspended", func() bool {
				list, err := h.engine.Connections()
				if err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(list, func(c Connection) bool {
					return slices.Contains([]string{stateAttached.String(), stateUp.String(), stateLeaving.String()}, c.State)
				})
			})
		}
	}
	back = func() {
		if err := f.Attach(hosts[1].nic); err != nil {
			t.Error(err)
		}
		for i, h := range hosts {
			h.engine.PeerUp(fabric.NodeID(2 - i))
		}
	}
	return hosts, cut, back
}

// joined has a connection of these nodes, with both directions in the segments.
func joined(t *testing.T, hosts []*host, size segment.Config) (client, server *segment.End) {
	t.Helper()
	client = hosts[0].call(t, hosts[1], size)
	server = hosts[1].answer(t)
	until(t, "attached", client.Attached)
	for _, e := range []*segment.End{client, server} {
		promotes(t, e, 0)
	}
	for _, e := range []*segment.End{client, server} {
		until(t, "promoted", func() bool { _, ok := e.PromotedAt(); return ok })
	}
	return client, server
}

// However often the link is cut, at whatever moment, each byte comes once and in order, both ways.
func TestCutOften(t *testing.T) {
	hosts, cut, back := cutHosts(t, nil)
	const total, cuts = 8 << 20, 20
	var work sync.WaitGroup
	var sent atomic.Int64
	var ends [][2]*segment.End
	for range 3 {
		client, server := joined(t, hosts, segment.Config{Slots: 64, Ring: 1 << 18})
		ends = append(ends, [2]*segment.End{client, server}, [2]*segment.End{server, client})
	}
	for i, pair := range ends {
		data := pattern(uint64(i), total)
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN([]int{100, 3000, 30_000, 200_000}[r.IntN(4)]))
				if err := send(t, pair[0], rest[:n], false); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
				sent.Add(int64(n))
			}
		})
		work.Go(func() {
			if got, err := receive(t, pair[1], total, false); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %d, or others: %v", len(got), total, err)
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 1))
	for c := range int64(cuts) { // evenly over the bytes
		for sent.Load() < c*int64(len(ends))*total/cuts && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		cut()
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		back()
	}
	work.Wait()
	if s := hosts[0].engine.Stats(); s.Lost != 0 || s.Breaches != 0 || s.Resumed == 0 {
		t.Errorf("%+v", s)
	}
}

// A program that sends and closes while the link is away is heard to the end when that is back.
func TestClosesWhileCut(t *testing.T) {
	hosts, cut, back := cutHosts(t, nil)
	client, server := joined(t, hosts, segment.Config{})
	cut()
	data := pattern(3, 100_000)
	if err := send(t, server, data, true); err != nil {
		t.Fatal(err)
	}
	if err := server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	_ = server.Close(false)
	back()
	if got, err := receive(t, client, len(data), true); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, or others: %v", len(got), err)
	}
	_ = end(t, client, true)
	_ = client.Close(false)
	for _, h := range hosts {
		until(t, "forgotten", func() bool { return h.count() == 0 && h.regions() == 0 })
	}
}

// A program that falls back while the link is away gets the rest by TCP when that is back.
func TestFallsBackWhileCut(t *testing.T) {
	hosts, cut, back := cutHosts(t, nil)
	client, server := joined(t, hosts, segment.Config{})
	cut()
	if n, err := client.Send([]byte("before")); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	if err := server.FallBack(); err != nil {
		t.Fatal(err)
	}
	back()
	returns(t, client, []byte("before"))
	until(t, "returned", server.PeerReturned)
}

// A link that does not come back is waited for no longer than TCP would: as its program says, if
// that does.
func TestCutForGood(t *testing.T) {
	for name, c := range map[string]struct{ patience, user time.Duration }{
		"default": {time.Millisecond, 0}, "TCP_USER_TIMEOUT": {time.Hour, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			hosts, cut, _ := cutHosts(t, func(cfg *Config) { cfg.Patience = func() time.Duration { return c.patience } })
			client, server := joined(t, hosts, segment.Config{})
			for _, e := range []*segment.End{client, server} {
				e.SetUserTimeout(c.user)
			}
			cut()
			for _, e := range []*segment.End{client, server} {
				if err := end(t, e, true); !errors.Is(err, segment.ErrReset) {
					t.Error(err)
				}
			}
			for _, h := range hosts {
				until(t, "forgotten", func() bool { return h.count() == 0 && h.regions() == 0 })
			}
		})
	}
}

// A connection with nothing under way waits for its link for ever, as TCP does. One whose program
// has closed waits for longer than the far node does.
func TestCutWhileIdle(t *testing.T) {
	hosts, cut, _ := cutHosts(t, func(c *Config) { c.Patience = func() time.Duration { return time.Hour } })
	client, _ := joined(t, hosts, segment.Config{})
	e := hosts[0].engine
	look := func(after time.Duration) (ended bool) {
		done := make(chan struct{})
		if err := e.doLater(func() {
			defer close(done)
			for _, c := range e.conns {
				if ended = e.hasWaitedTooLong(c, e.cfg.Patience); !c.owes.IsZero() {
					c.owes = c.owes.Add(-after)
					ended = e.hasWaitedTooLong(c, e.cfg.Patience)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		<-done
		return ended
	}
	hosts[0].confirmed(t)
	cut()
	if look(2 * time.Hour) {
		t.Error("nothing is under way, and it ends")
	}
	if _, err := client.Send([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if look(0) || look(59*time.Minute) || !look(2*time.Minute) {
		t.Error("it does not wait for an hour after something was sent")
	}
	_ = client.Close(false)
	if look(0) || look(58*time.Minute) || !look(2*time.Minute) {
		t.Error("it does not wait for two hours after its program has closed")
	}
}

// What TCP sends first while a connection is suspended passes as soon as it goes on, behind what
// its program has said before; what TCP sends again meanwhile takes nobody's room.
func TestHeldWhileCut(t *testing.T) {
	hosts, cut, back := cutHosts(t, nil)
	client, server := joined(t, hosts, segment.Config{})
	e := hosts[0].engine
	cut()
	if err := send(t, client, []byte("before"), true); err != nil {
		t.Fatal(err)
	}
	g, _ := e.Gate(packet4(clientAddr, serverAddr, 0x11, 0))
	if g == nil {
		t.Fatal("not held")
	}
	readable := make(chan int, 2)
	say := func() { readable <- server.Readable() }
	if !e.Hold(g, false, say) {
		t.Fatal("the first packet is dropped")
	}
	for range 20 {
		if e.Hold(g, false, func() { t.Error("a repetition passes") }) {
			t.Fatal("a repetition is held")
		}
	}
	if !e.Hold(g, true, say) {
		t.Fatal("a reset is dropped")
	}
	list, err := e.Connections()
	if err != nil || len(list) != 1 || list[0].State != "cut" || list[0].Gate != "stopped" || list[0].Waits != "a link" || list[0].Held != 2 || list[0].HeldDropped != 20 {
		t.Errorf("%+v, %v", list, err)
	}
	back()
	for range 2 {
		if n := <-readable; n != len("before") {
			t.Errorf("a packet passes when %d bytes are there", n)
		}
	}
	list, err = e.Connections()
	if err != nil || len(list) != 1 || list[0].State != "up" || list[0].Gate != "in order" || list[0].Held != 0 || list[0].Local != clientAddr || list[0].Remote != serverAddr {
		t.Errorf("%+v, %v", list, err)
	}
}

// While a connection is suspended, and where a node has begun anew that was not heard yet, no end
// of its shadow reaches a program: what was said in the segment before may not have come.
func TestEndsEarly(t *testing.T) {
	hosts, cut, back := cutHosts(t, nil)
	client, server := joined(t, hosts, segment.Config{})
	e := hosts[1].engine
	const fin, data, rst, ack = 0x11, 0x18, 0x14, 0x10
	admits := func(when string, want bool) {
		t.Helper()
		for name, p := range map[string][]byte{
			"FIN": packet4(clientAddr, serverAddr, fin, 0), "data": packet4(clientAddr, serverAddr, data, 1),
		} {
			if got := e.Admits(1, p); got != want {
				t.Errorf("%s: %s admitted: %v", when, name, got)
			}
		}
		for name, p := range map[string][]byte{
			"RST": packet4(clientAddr, serverAddr, rst, 0), "ACK": packet4(clientAddr, serverAddr, ack, 0),
			"of another": packet4(netip.AddrPortFrom(clientAddr.Addr(), 1), serverAddr, fin, 0),
		} {
			if !e.Admits(1, p) {
				t.Errorf("%s: %s is not admitted", when, name)
			}
		}
	}
	admits("up", true)
	cut()
	admits("cut", false)
	back()
	if err := send(t, client, []byte("more"), true); err != nil {
		t.Fatal(err)
	}
	if got, err := receive(t, server, 4, true); err != nil || string(got) != "more" {
		t.Fatalf("%q, %v", got, err)
	}
	admits("resumed", true)

	// Another node with that ID is there before anybody hears that the first one has gone.
	goOn := hosts[1].pause(t)
	defer goOn()
	if err := hosts[0].fabric.Detach(hosts[0].nic); err != nil {
		t.Fatal(err)
	}
	card, err := nic.New(nic.Config{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := hosts[0].fabric.Attach(card); err != nil {
		t.Fatal(err)
	}
	newHost(t, card, nil)
	admits("begun anew", false)
	goOn()
	e.PeerDown(1)
	e.PeerUp(1)
	if err := end(t, server, true); !errors.Is(err, segment.ErrReset) {
		t.Errorf("the server's program ends with %v", err)
	}
}

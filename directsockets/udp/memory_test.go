package udp

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
)

// stuck makes a Socket with a flow to a receiver that is awake and takes nothing. A rule has the
// sender wait for room.
func stuck(t *testing.T) (*Socket, *datagram.Rx, netip.AddrPort) {
	t.Helper()
	s, from := receiver(t)
	_, to := listen(t)
	tx, g := ends(t, from, to)
	peer, err := datagram.Map(g.Segment)
	if err != nil {
		t.Fatal(err)
	}
	rx := datagram.NewRx(peer, g.Bell, 0)
	t.Cleanup(rx.Close)
	rx.Dry(1)
	rx.Disarm()
	cookie, err := peerOf(from, to)
	if err != nil {
		t.Skip("the kernel does not say who has an address")
	}
	f := &outflow{to: to, phase: outUp, tx: tx, reliable: true, cookie: cookie, pause: offerAgain, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
	f.count = (*segment.Counters)(f.entry.Counters())
	s.out.add(f)
	return s, rx, to
}

// add has a flow in the table.
func (o *outbound) add(f *outflow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to[f.to] = f
	o.flows.Add(1)
}

// TestEndWhileWaiting has a socket close, leave, come to its deadline, or lose its receiver
// while a send waits for room. The call ends, and what is not in memory is the kernel's.
func TestEndWhileWaiting(t *testing.T) {
	for name, end := range map[string]func(s *Socket, rx *datagram.Rx){
		"close":    func(s *Socket, _ *datagram.Rx) { s.Close() },
		"leave":    func(s *Socket, _ *datagram.Rx) { s.Leave() },
		"deadline": func(s *Socket, _ *datagram.Rx) { s.SetWriteDeadline(time.Unix(1, 0)) },
		"receiver": func(_ *Socket, rx *datagram.Rx) { rx.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, rx, to := stuck(t)
			full := make(chan bool)
			go func() {
				defer close(full)
				for n := uint64(0); n == 0 || n != s.Stats().SentDirect; time.Sleep(5 * time.Millisecond) {
					n = s.Stats().SentDirect // the ring is full when this stays the same
				}
			}()
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				for sent := true; sent; _, sent = s.Send(make([]byte, 12000), to, nil) {
				}
			}()
			<-full
			end(s, rx)
			select {
			case p := <-ended:
				if p != nil {
					t.Errorf("Send panics: %v", p)
				}
			case <-time.After(time.Minute):
				t.Fatal("Send does not end")
			}
		})
	}
}

// TestKeptMemory has a receiver keep what is in a ring. It has no more memory of each datagram
// than it accounts for.
func TestKeptMemory(t *testing.T) {
	for _, size := range []int{60000, 1} {
		s, _ := receiver(t)
		_, tx, rx := flow(t)
		f := &inflow{rx: rx, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
		f.count = (*segment.Counters)(f.entry.Counters())
		rx.Dry(1)
		rx.Disarm()
		for range 5 {
			if out := tx.Send(make([]byte, size), datagram.Meta{}); out != datagram.Published {
				t.Fatal(out)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.in.finishFlow(f, connstats.WhyNothing)
		runtime.ReadMemStats(&after)
		if n, all := len(s.in.kept), after.TotalAlloc-before.TotalAlloc; n == 0 || all > 4*mostKept {
			t.Errorf("%d datagrams of %d bytes have taken %d, at most %d are accounted for", n, size, all, mostKept)
		}
	}
}

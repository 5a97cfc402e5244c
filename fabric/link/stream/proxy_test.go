package stream_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/netns/netnstest"
)

// badWay makes TCP connections that lead through a proxy, which passes bytes on in pieces
// of any size, holds some back for a moment, and cuts all of them after so many bytes.
type badWay struct {
	cutAfter atomic.Int64 // bytes of all connections; 0: never
	passed   atomic.Int64
	cut      chan struct{} // closed when they are cut
	once     sync.Once
	work     sync.WaitGroup
}

func newBadWay(tb testing.TB) *badWay {
	w := &badWay{cut: make(chan struct{})}
	tb.Cleanup(func() {
		w.end()
		w.work.Wait()
	})
	return w
}

func (w *badWay) end() { w.once.Do(func() { close(w.cut) }) }

// connect returns the ends of a connection.
func (w *badWay) connect(tb testing.TB) (a, b net.Conn) {
	tb.Helper()
	a, near := fabrictest.TCP(tb)
	far, b := fabrictest.TCP(tb)
	seed := rand.Uint64()
	w.work.Go(func() { w.pass(near, far, seed) })
	w.work.Go(func() { w.pass(far, near, seed+1) })
	w.work.Go(func() {
		<-w.cut
		near.Close()
		far.Close()
	})
	return a, b
}

// pass carries bytes one way until the connections end.
func (w *badWay) pass(from, to net.Conn, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	buf := make([]byte, 128<<10)
	for {
		n, err := from.Read(buf[:1+rng.IntN(len(buf))])
		for p := buf[:n]; len(p) > 0; {
			k := min(len(p), 1+rng.IntN(1<<rng.IntN(18)))
			if rng.IntN(16) == 0 {
				time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
			}
			if _, err := to.Write(p[:k]); err != nil {
				w.end()
				return
			}
			p = p[k:]
			if all, cut := w.passed.Add(int64(k)), w.cutAfter.Load(); cut > 0 && all >= cut {
				w.end()
				return
			}
		}
		if err != nil {
			w.end()
			return
		}
	}
}

// kindsOfLinks are how links of these tests are made.
func kindsOfLinks() map[string]fabrictest.StreamConfig {
	return map[string]fabrictest.StreamConfig{
		"1": {Conns: 1}, "4": {Conns: 4}, "driven": {Conns: 1, Driven: true}, "driven 3": {Conns: 3, Driven: true},
		"TLS": {Conns: 1, TLS: true}, "TLS 2": {Conns: 2, TLS: true},
	}
}

// Whatever the way does to the bytes, what arrives is what was sent; and when it is cut,
// each operation ends once, both links are down, and nothing is left of them.
func TestBadWay(t *testing.T) {
	for name, cfg := range kindsOfLinks() {
		for _, cut := range []int64{0, 1000, 300_000, 3_000_000} {
			t.Run(fmt.Sprintf("%s, cut after %d", name, cut), func(t *testing.T) {
				netnstest.CheckFDs(t)
				way := newBadWay(t)
				cfg := cfg
				cfg.Pipe = way.connect
				x, y := fabrictest.NewNIC(t, 0), fabrictest.NewNIC(t, 1)
				var driver link.Driver
				if cfg.Driven {
					cfg.Link.Driver, driver = fabrictest.NewDriver(t), fabrictest.NewDriver(t)
				}
				lx, ly := fabrictest.JoinStream(t, x, y, cfg, driver)
				if cut > 0 {
					way.cutAfter.Store(way.passed.Load() + cut)
				}
				traffic(t, x, y, cut > 0)
				if cut == 0 {
					if lx.Err() != nil || ly.Err() != nil {
						t.Error(lx.Err(), ly.Err())
					}
					return
				}
				way.end()
				for _, l := range []interface {
					Done() <-chan struct{}
					Err() error
				}{lx, ly} {
					<-l.Done()
					if !errors.Is(l.Err(), fabric.ErrPeerDown) {
						t.Error(l.Err())
					}
				}
				if x.Routes().Port(1) != nil || y.Routes().Port(0) != nil {
					t.Error("there is a way to a peer that is gone")
				}
			})
		}
	}
}

// traffic has both nodes send messages, and read and write each other's memory. With cut
// it goes on until that fails.
func traffic(t *testing.T, x, y *nic.NIC, cut bool) {
	t.Helper()
	var all sync.WaitGroup
	for i, n := range []*nic.NIC{x, y} {
		peer := []*nic.NIC{y, x}[i]
		v := fabric.VPID(10 + i)
		all.Go(func() { transfers(t, n, peer, v, cut) })
		all.Go(func() { messages(t, n, peer, v, cut) })
	}
	all.Wait()
}

// transfers writes and reads back memory of the peer, several at a time.
func transfers(t *testing.T, n, peer *nic.NIC, v fabric.VPID, cut bool) {
	const size, depth = 300 << 10, 4
	own, far := fabrictest.OpenRMA(t, n, v, rma.Config{}), fabrictest.OpenRMA(t, peer, v, rma.Config{})
	defer own.Close()
	defer far.Close()
	rng := rand.New(rand.NewPCG(uint64(v), 1))
	type lane struct {
		source, sink, remote *atu.Region
		nla                  atu.NLA
		n, step              int
	}
	var lanes []*lane
	laneOf := func(at atu.NLA) *lane {
		for _, l := range lanes {
			if at-l.source.NLA() < size || at-l.sink.NLA() < size {
				return l
			}
		}
		return nil
	}
	started, ended := 0, 0
	next := func(l *lane) bool {
		var err error
		if l.step++; l.step%2 == 1 {
			l.n = 1 + rng.IntN(1<<rng.IntN(19))
			l.n = min(l.n, size)
			for i := range l.source.Bytes()[:l.n] {
				l.source.Bytes()[i] = byte(rng.Uint32())
			}
			err = own.Put(rma.PutReq{Local: l.source.NLA(), Remote: l.nla, Len: l.n, Node: peer.ID(), VPID: v, Notify: rma.NotifyRequester})
		} else {
			err = own.Get(rma.GetReq{Local: l.sink.NLA(), Remote: l.nla, Len: l.n, Node: peer.ID(), VPID: v, Notify: rma.NotifyCompleter})
		}
		if err != nil {
			if !cut || !errors.Is(err, fabric.ErrNoRoute) {
				t.Error(err)
			}
			return false
		}
		started++
		return true
	}
	for range depth {
		l := &lane{source: fabrictest.Register(t, n, v, size, atu.Read), sink: fabrictest.Register(t, n, v, size, atu.Write),
			remote: fabrictest.Register(t, peer, v, size, atu.Read|atu.Write)}
		var err error
		if l.nla, err = l.remote.Lend(n.ID()); err != nil {
			t.Error(err)
			return
		}
		lanes = append(lanes, l)
		next(l)
	}
	for ended < started {
		var note rma.Notification
		fabrictest.Eventually(t, "an operation ends", func() (ok bool) { note, ok = own.Next(); return ok })
		ended++
		l := laneOf(note.Local)
		if note.Status != fabric.StatusOK {
			if !cut || note.Status != fabric.StatusPeerDown && note.Status != fabric.StatusNoVPID {
				t.Error(note.Status)
			}
			continue
		}
		if l.step%2 == 0 && !bytes.Equal(l.sink.Bytes()[:l.n], l.source.Bytes()[:l.n]) {
			t.Errorf("%d bytes came back as others", l.n)
		}
		if cut || l.step < 20 {
			next(l)
		}
	}
	if _, ok := own.Next(); ok {
		t.Error("an operation ended twice")
	}
	for _, l := range lanes {
		fabrictest.Eventually(t, "the regions are free", func() bool { return l.source.Revoke() && l.sink.Revoke() && l.remote.Revoke() })
	}
}

// messages sends numbered messages, which the peer has in order.
func messages(t *testing.T, n, peer *nic.NIC, v fabric.VPID, cut bool) {
	const total = 3000
	from, to := fabrictest.OpenVELO(t, n, v, velo.Config{}), fabrictest.OpenVELO(t, peer, v, velo.Config{Slots: 64, Credits: 16})
	credit := make(chan struct{}, 1)
	from.OnCredit(func(fabric.NodeID) {
		select {
		case credit <- struct{}{}:
		default:
		}
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		msg := make([]byte, 100)
		for i := uint64(0); cut || i < total; {
			binary.LittleEndian.PutUint64(msg, i)
			switch err := from.Send(velo.Descriptor{Dst: peer.ID(), VPID: v}, msg[:8+i%93]); {
			case err == nil:
				i++
			case errors.Is(err, fabric.ErrAgain):
				<-credit
			case errors.Is(err, fabric.ErrPeerDown) && i == 0:
				time.Sleep(20 * time.Microsecond) // the mailbox is not known yet
			case errors.Is(err, fabric.ErrNoRoute) && cut, errors.Is(err, fabric.ErrPeerDown) && cut:
				return
			default:
				t.Error(err)
				return
			}
		}
	}()
	for want := uint64(0); ; {
		_, p, ok := to.Peek()
		if !ok {
			select {
			case <-over:
				if want == total || cut {
					return
				}
			default:
			}
			time.Sleep(10 * time.Microsecond)
			continue
		}
		if got := binary.LittleEndian.Uint64(p); got != want || len(p) != int(8+want%93) {
			t.Errorf("message %d of %d bytes, want %d", got, len(p), want)
			return
		}
		want++
		to.Advance()
	}
}

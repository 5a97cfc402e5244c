package velo_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/velo"
)

func TestInterruptIsOneShot(t *testing.T) {
	x, y := pair(t, velo.Config{})
	n := 0
	y.OnInterrupt(func() { n++ })
	send := func() {
		t.Helper()
		if err := x.Send(to(1), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if n != 0 {
		t.Fatal("interrupt while disabled")
	}
	if !y.EnableInterrupt() {
		t.Fatal("EnableInterrupt does not see the message")
	}
	send()
	send()
	if n != 1 {
		t.Fatalf("%d interrupts for one enable", n)
	}
	read(t, y, 3)
	if y.EnableInterrupt() {
		t.Fatal("EnableInterrupt sees a message in an empty mailbox")
	}
	y.DisableInterrupt()
	send()
	if n != 1 {
		t.Fatal("interrupt after DisableInterrupt")
	}
	if s := y.Stats(); s.Interrupts != 1 {
		t.Errorf("counter says %d", s.Interrupts)
	}
}

func TestQuietMessagesInterruptLater(t *testing.T) {
	nics := fabrictest.New(t, 3)
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	n := 0
	for _, c := range nics[1:] {
		e := fabrictest.OpenVELO(t, c, vpid, velo.Config{})
		e.OnInterrupt(func() { n += drain(e) })
		e.EnableInterrupt()
	}
	d := to(1)
	d.Quiet = true
	for range 3 {
		if err := x.Send(d, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	if n != 0 {
		t.Fatal("a quiet message raised an interrupt")
	}
	if x.Interrupt(1, vpid); n != 3 {
		t.Errorf("%d messages read, want 3", n)
	}
	x.Interrupt(1, 77) // no flow: nothing
	nics[1].Stats()
	g := velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid, Quiet: true}
	if err := x.SendMulticast(g, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if n != 3 {
		t.Fatal("a quiet multicast raised an interrupt")
	}
	if x.InterruptGroup(fabric.GroupBroadcast, vpid); n != 4 { // node 1's is disabled
		t.Errorf("%d messages read, want 4", n)
	}
}

// The handler runs in the sender's goroutine and answers at once; the answer's
// handler runs nested in it.
func TestHandlersNest(t *testing.T) {
	x, y := pair(t, velo.Config{Slots: 4, Credits: 1})
	hops := 0
	serve := func(e *velo.Endpoint, peer fabric.NodeID) func() {
		return func() {
			for {
				if drain(e) == 0 {
					if !e.EnableInterrupt() {
						return
					}
					continue
				}
				if hops++; hops == 50 {
					return
				}
				e.EnableInterrupt()
				if err := e.Send(to(peer), []byte{1}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	x.OnInterrupt(serve(x, 1))
	y.OnInterrupt(serve(y, 0))
	x.EnableInterrupt()
	y.EnableInterrupt()
	if err := x.Send(to(1), []byte{1}); err != nil {
		t.Fatal(err)
	}
	if hops != 50 {
		t.Errorf("%d hops, want 50", hops)
	}
}

// poller is NAPI in small: whoever sets scheduled is the consumer.
type poller struct {
	e         *velo.Endpoint
	scheduled atomic.Bool
	missed    atomic.Bool
	read      atomic.Int64
}

// interrupt is the handler, and may run in the sender's goroutine.
func (p *poller) interrupt() {
	p.missed.Store(true)
	for p.missed.Load() && p.scheduled.CompareAndSwap(false, true) {
		p.missed.Store(false)
		for {
			p.read.Add(int64(drain(p.e)))
			if !p.e.EnableInterrupt() {
				break
			}
			p.e.DisableInterrupt()
		}
		p.scheduled.Store(false)
	}
}

// Several senders that sleep when they have no credit, and a consumer that reads
// only when it is interrupted, in the senders' goroutines or in its own: every
// message is read.
func TestNoLostInterrupt(t *testing.T) {
	for _, inline := range []bool{false, true} {
		const nodes, each = 3, 5000
		nics := fabrictest.New(t, nodes+1)
		dst := fabrictest.OpenVELO(t, nics[nodes], vpid, velo.Config{Slots: 64, Credits: 16})
		p := &poller{e: dst}
		wake := make(chan struct{}, 1)
		var consumer, senders sync.WaitGroup
		if inline {
			dst.OnInterrupt(p.interrupt)
		} else {
			dst.OnInterrupt(func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
			consumer.Go(func() {
				for range wake {
					p.interrupt()
				}
			})
		}
		dst.EnableInterrupt()
		for i := range nodes {
			e := fabrictest.OpenVELO(t, nics[i], vpid, velo.Config{})
			credit := make(chan struct{}, 1)
			e.OnCredit(func(fabric.NodeID) {
				select {
				case credit <- struct{}{}:
				default:
				}
			})
			senders.Go(func() {
				for range each {
					for e.Send(to(nodes), []byte{1}) != nil {
						<-credit // hangs if an interrupt is lost
					}
				}
			})
		}
		senders.Wait()
		for end := time.Now().Add(3 * time.Minute); p.read.Load() < nodes*each && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		close(wake)
		consumer.Wait()
		if n := p.read.Load(); n != nodes*each {
			t.Errorf("inline %v: %d messages read, want %d", inline, n, nodes*each)
		}
	}
}

package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets/segment"
)

// shadow is one direction of a connection's TCP connection, which has one packet at a time on its
// way.
type shadow struct {
	engine *Engine // of the sender
	packet []byte
	mu     sync.Mutex
	b      []byte // +checklocks:mu
}

func (s *shadow) write(p []byte) (all uint64) {
	passed := make(chan uint64, 1)
	pass := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.b = append(s.b, p...)
		passed <- uint64(len(s.b))
	}
	g, _ := s.engine.Gate(s.packet)
	switch {
	case g == nil:
		pass()
	case !s.engine.Hold(g, false, pass):
		time.Sleep(time.Millisecond) // TCP sends it again
		return s.write(p)
	}
	return <-passed
}

// from returns a copy of what comes after so many bytes.
func (s *shadow) from(at int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b[at:])
}

// sendPausing sends data in the segment, with PAUSE and PROMOTE now and then, and what comes
// between these on the shadow.
func sendPausing(t *testing.T, e *segment.End, s *shadow, data []byte, r *rand.Rand, sent *atomic.Int64) error {
	some := func(most int) (p []byte) {
		n := min(len(data), 1+r.IntN(most))
		p, data = data[:n], data[n:]
		sent.Add(int64(n))
		return p
	}
	for len(data) > 0 {
		for range r.IntN(4) {
			if err := send(t, e, some([]int{100, 3000, 100_000}[r.IntN(3)]), false); err != nil {
				return err
			}
		}
		for {
			err := e.Pause()
			if err == nil {
				break
			}
			if err != segment.ErrAgain {
				return err
			}
			wait(t, e, false, false)
		}
		more := 8 // pieces in one pause, however long that is on a busy machine
		for all := s.write(some(20_000)); ; {
			if more > 0 && r.IntN(8) == 0 {
				more--
				all = s.write(some(2000))
			}
			err := e.Resumed()
			if err == nil {
				err = e.Promote(all)
			}
			if err == nil {
				break
			}
			if err != segment.ErrAgain {
				return err
			}
			if len(data) == 0 {
				return nil
			}
			wait(t, e, false, false)
		}
	}
	return nil
}

// receivePausing receives what sendPausing sends, n bytes, and returns how often it was direct.
func receivePausing(t *testing.T, e *segment.End, s *shadow, n int) (got []byte, times int, err error) {
	p := make([]byte, 1<<17)
	read, direct := 0, true
	for len(got) < n {
		if direct {
			k, err := e.Recv(p)
			got = append(got, p[:k]...)
			switch err {
			case nil:
			case segment.ErrPaused:
				direct = false
			case segment.ErrAgain:
				wait(t, e, true, false)
			default:
				return got, times, err
			}
			continue
		}
		b := s.from(read)
		all, ok := e.PromotedAt() // after it: what comes after PAUSE is on the shadow after PROMOTE
		if ok {
			if all < uint64(read) || all > uint64(read+len(b)) {
				return got, times, fmt.Errorf("PROMOTE says %d bytes of the shadow, which has given %d of %d", all, read, read+len(b))
			}
			b = b[:int(all)-read]
			direct = true
			times++
		} else if len(b) == 0 {
			wait(t, e, true, false)
		}
		read += len(b)
		got = append(got, b...)
	}
	return got, times, nil
}

// A direction that pauses is direct again, as often as it likes, both ways, and each byte comes
// once and in order, however often the link is cut, at whatever moment.
func TestPausesOften(t *testing.T) {
	hosts, cut, back := cutHosts(t, nil)
	partners(hosts)
	const total, cuts = 4 << 20, 20
	client, server := joined(t, hosts, segment.Config{Slots: 64, Ring: 1 << 18})
	var sent, times atomic.Int64
	var work sync.WaitGroup
	ways := []netip.AddrPort{clientAddr, serverAddr}
	for i, pair := range [][2]*segment.End{{client, server}, {server, client}} {
		data := pattern(uint64(i), total)
		if !pair[0].MayPause() {
			t.Fatal("it may not pause")
		}
		s := &shadow{engine: hosts[i].engine, packet: packet4(ways[i], ways[1-i], 0x18, 1)}
		work.Go(func() {
			if err := sendPausing(t, pair[0], s, data, rand.New(rand.NewPCG(uint64(i), 1)), &sent); err != nil {
				t.Errorf("sending: %v", err)
			}
		})
		work.Go(func() {
			got, n, err := receivePausing(t, pair[1], s, total)
			if times.Add(int64(n)); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %d, or others: %v", len(got), total, err)
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 1))
	for c := range int64(cuts) { // evenly over the bytes
		for sent.Load() < c*2*total/cuts && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		cut()
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		back()
	}
	work.Wait()
	if s := hosts[0].engine.Stats(); times.Load() < cuts || s.Lost != 0 || s.Breaches != 0 || s.Resumed == 0 {
		t.Errorf("direct %d times again, %+v", times.Load(), s)
	}
	t.Logf("direct %d times again", times.Load())
}

// A program pauses only where both programs and both nodes know PAUSE.
func TestPauseVersions(t *testing.T) {
	for _, tt := range []struct {
		speaks   [2]uint8
		old      bool // the client's library
		c, s     bool
		describe string
	}{
		{[2]uint8{7, 7}, false, true, true, "both nodes know it"},
		{[2]uint8{6, 6}, false, false, false, "the nodes speak version 6"},
		{[2]uint8{4, 7}, false, true, false, "the client's node has not heard of the version"},
		{[2]uint8{7, 7}, true, true, false, "the client does not know it"},
	} {
		t.Run(tt.describe, func(t *testing.T) {
			hosts := newHosts(t, 2, nil)
			for i, h := range hosts {
				h.engine.Speak(hosts[1-i].nic.ID(), tt.speaks[i])
			}
			size := segment.Config{}
			var client *segment.End
			if tt.old {
				client = hosts[0].callOld(t, hosts[1], size)
			} else {
				client = hosts[0].call(t, hosts[1], size)
			}
			server := hosts[1].answer(t)
			until(t, "attached", client.Attached)
			if c, s := client.MayPause(), server.MayPause(); c != tt.c || s != tt.s {
				t.Errorf("the client may pause: %v, the server: %v", c, s)
			}
		})
	}
}

// After PAUSE packets of the shadow pass at once, and after PROMOTE in order again.
func TestGatePause(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	partners(hosts)
	client, server := joined(t, hosts, segment.Config{Slots: 16})
	e := hosts[0].engine
	fin := packet4(clientAddr, serverAddr, 0x11, 0)
	for round := range 50 {
		data := pattern(uint64(round), 1+round*300)
		if err := send(t, client, data, true); err != nil {
			t.Fatal(err)
		}
		g, _ := e.Gate(fin)
		if g == nil {
			t.Fatal("not held while it is direct")
		}
		var readable atomic.Int64
		passed := make(chan struct{})
		e.Hold(g, false, func() { readable.Store(int64(server.Readable())); close(passed) })
		if <-passed; readable.Load() != int64(len(data)) {
			t.Fatalf("round %d: the packet passes when %d of %d bytes are there", round, readable.Load(), len(data))
		}
		if err := client.Pause(); err != nil {
			t.Fatal(err)
		}
		until(t, "packets pass at once", func() bool {
			g, _ := e.Gate(fin)
			if g == nil {
				return true
			}
			passed := make(chan struct{})
			if e.Hold(g, false, func() { close(passed) }) {
				<-passed
			}
			return false
		})
		if _, err := receive(t, server, len(data), true); err != nil {
			t.Fatal(err)
		}
		if err := end(t, server, true); err != segment.ErrPaused {
			t.Fatal(err)
		}
		until(t, "resumed", func() bool { return client.Resumed() == nil })
		promotes(t, client, 0)
		until(t, "promoted", func() bool { _, ok := server.PromotedAt(); return ok })
	}
}

// While an operator has switched direct sockets off at either host, and both directions have
// paused, no data is under way: if a node is killed then, neither program gets a reset. Once they
// are on, the far program may promote, and nobody knows whether it has.
func TestPausedNodeKilled(t *testing.T) {
	const off = 1 << (8 * segment.SwitchByte)
	for who, name := range []string{"client", "server"} {
		for killed := range 2 {
			for _, on := range []bool{false, true} {
				t.Run(fmt.Sprintf("off at the %s's host, node %d, on %v", name, killed, on), func(t *testing.T) {
					hosts := newHosts(t, 2, nil)
					partners(hosts)
					client, server := joined(t, hosts, segment.Config{})
					ends := []*segment.End{client, server}
					var word atomic.Uint64
					ends[who].HeedSwitch(&word)
					word.Store(off)
					if _, err := ends[who].Recv(make([]byte, 1)); err != segment.ErrAgain { // it looks
						t.Fatal(err)
					}
					for _, i := range []int{who, 1 - who} {
						until(t, "switched off", func() bool { return ends[i].Back() != 0 })
						if err := ends[i].Pause(); err != nil {
							t.Fatal(err)
						}
					}
					for _, e := range ends {
						if err := end(t, e, true); err != segment.ErrPaused {
							t.Fatal(err)
						}
					}
					if on {
						word.Store(0)
						for _, e := range ends {
							until(t, "resumed", func() bool {
								ends[who].PromotedAt() // it looks
								return e.Resumed() == nil
							})
						}
					}
					hosts[killed].stop()
					for i, e := range ends {
						until(t, "the node is lost", func() bool { e.Awake(); return e.Err() == segment.ErrReset })
						if e.Lost() != on {
							t.Errorf("end %d takes data for lost: %v", i, e.Lost())
						}
					}
				})
			}
		}
	}
}

// Only while it is switched off is a sender not told that its PAUSE was consumed, whichever end is,
// and however often the link is cut meanwhile.
func TestPauseWhileOff(t *testing.T) {
	const off = 1 << (8 * segment.SwitchByte)
	for who, name := range []string{"the sender", "the receiver"} {
		t.Run(name, func(t *testing.T) {
			hosts, cut, back := cutHosts(t, nil)
			partners(hosts)
			client, server := joined(t, hosts, segment.Config{})
			ends := []*segment.End{client, server}
			var word atomic.Uint64
			ends[who].HeedSwitch(&word)
			for round := range 20 {
				word.Store(off)
				until(t, "switched off", func() bool {
					_, err := ends[who].Recv(make([]byte, 1))
					return err == segment.ErrAgain && client.Back() != 0
				})
				if err := client.Pause(); err != nil {
					t.Fatal(err)
				}
				if err := end(t, server, true); err != segment.ErrPaused {
					t.Fatal(err)
				}
				if round%2 == 1 {
					cut()
				}
				if err := client.Resumed(); err != segment.ErrAgain {
					t.Fatalf("round %d: %v while it is off", round, err)
				}
				word.Store(0)
				_, _ = ends[who].Recv(make([]byte, 1))
				ends[who].PromotedAt()
				if round%2 == 1 {
					back()
				}
				until(t, "resumed", func() bool { return client.Resumed() == nil })
				promotes(t, client, 0)
				until(t, "promoted", func() bool { _, ok := server.PromotedAt(); return ok })
			}
		})
	}
}

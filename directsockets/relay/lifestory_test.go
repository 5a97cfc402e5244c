package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
)

// stepProgram is one of the two programs.
type stepProgram struct {
	name   string
	e      *segment.End
	data   []byte // that it sends
	sent   int    // bytes of data, in the segment
	back   int    // of these, bytes that it has written to the shadow instead
	got    []byte
	closes int    // after so many bytes that have come; below 0: after all
	aborts bool   // by a reset
	rx     error  // why nothing more comes
	closed bool   // it has closed before
	mid    func() // is called once some bytes have come
}

// run runs the program until its connection is over.
func (p *stepProgram) run(r *stepRun) {
	const again, promoted, down, over = 0, 1, 2, 3
	tx, buf := again, make([]byte, 1<<14)
	chunks := []int{50, 3000, 20_000, 400}
	limit := time.Now().Add(hang)
	for turn := 0; ; {
		p.e.Awake()
		if p.rx == nil {
			p.e.PromotedAt()
			n, err := p.e.Recv(buf)
			p.got = append(p.got, buf[:n]...)
			if err != nil && err != segment.ErrAgain && err != segment.ErrNotPromoted {
				p.rx = err
			}
		}
		if p.mid != nil && len(p.got) >= 3000 {
			p.mid()
			p.mid = nil
		}
		var err error
		switch {
		case tx == over:
		case p.e.FallenBack():
			err = p.e.ReturnToTCP(func(b []byte) (int, error) { p.back += len(b); return len(b), nil })
			if tx = over; err != nil {
				r.t.Errorf("%s returns: %v", p.name, err)
			}
			err = nil
		case tx == again:
			if err = p.e.Promote(0); err == nil {
				tx = promoted
			}
		case p.sent < len(p.data):
			var n int
			n, err = p.e.Send(p.data[p.sent:min(len(p.data), p.sent+chunks[turn%len(chunks)])])
			p.sent += n
			turn++
		case tx == promoted:
			if err = p.e.Shutdown(); err == nil {
				tx = down
			}
		}
		if err != nil && err != segment.ErrAgain && !p.e.PeerFallenBack() && p.e.Back() == 0 {
			tx = over
		}
		done := p.rx == io.EOF && tx == down
		if done || p.closes >= 0 && len(p.got) >= p.closes && tx >= promoted {
			p.closed = true
			_ = p.e.Close(p.aborts)
			return
		}
		switch { // what its node has not taken goes on the shadow first
		case tx < over && p.e.FallenBack():
		case p.rx != nil && p.e.Err() != nil || p.e.Err() != nil && tx == again || p.e.PeerState() == segment.StateWithdrawn && p.e.Side() == segment.Client:
			return
		}
		if time.Now().After(limit) {
			list, _ := r.hosts[0].engine.Connections()
			others, _ := r.hosts[1].engine.Connections()
			r.t.Errorf("%s never ends: %d of %d sent, %d have come (%v), %v; nodes: %+v, %+v", p.name, p.sent, len(p.data), len(p.got), p.rx, p.e.Err(), list, others)
			return
		}
		time.Sleep(10 * time.Microsecond)
	}
}

// told is what the program knows of the end.
func (p *stepProgram) told() string {
	switch {
	case p == nil:
		return "nobody there"
	case p.closed:
		return "has closed"
	}
	return fmt.Sprint(p.rx, ", ", p.e.Err())
}

func (p *stepProgram) wasReset() bool {
	return p != nil && (p.e.Side() == segment.Server || p.e.Attached()) && (errors.Is(p.rx, segment.ErrReset) || !p.closed && p.e.Err() == segment.ErrReset)
}

// stepStory is what the programs of a connection do.
type stepStory struct {
	name   string
	client func(r *stepRun, p *stepProgram) // is called before it runs
	server func(r *stepRun, p *stepProgram) // likewise
	refuse bool                             // the server does
	leave  bool                             // nobody takes the offer
	cancel bool                             // the client takes it back
	resets bool                             // one may get a reset without a fault
}

var stepStories = []stepStory{
	{name: "both send"},
	{name: "the client closes early", client: func(_ *stepRun, p *stepProgram) { p.closes = 0; p.data = p.data[:100] }},
	{name: "the server closes early", server: func(_ *stepRun, p *stepProgram) { p.closes = 100 }},
	{name: "the client aborts", client: func(_ *stepRun, p *stepProgram) { p.closes, p.aborts = 100, true }, resets: true},
	{name: "the server refuses", refuse: true},
	{name: "nobody takes it", leave: true},
	{name: "the client cancels", cancel: true},
	{name: "the client's node ends", client: goesBackAt(0)},
	{name: "the server's node ends", client: goesBackAt(1)},
	{name: "both nodes end", client: goesBackAt(2)},
	{name: "a node takes its program for faulty", client: func(r *stepRun, p *stepProgram) {
		p.mid = func() {
			e := r.living()[0].engine
			_ = e.doLater(func() {
				for _, c := range e.conns {
					e.failConn(c, segment.ErrCorrupt)
				}
			})
		}
	}, resets: true},
}

func goesBackAt(who int) func(r *stepRun, p *stepProgram) {
	return func(r *stepRun, p *stepProgram) {
		p.mid = func() {
			for i, h := range r.living() {
				if who == i || who == 2 {
					r.back.Go(func() { h.engine.GoBack(r.goBack) })
				}
			}
		}
	}
}

// live has the programs of a story live through faults, and checks what they know in the end. It
// returns the steps that were taken, and those before which a fault came.
func (s *stepStory) live(t *testing.T, faults ...stepAt) (steps []stepRow, hit map[int]stepRow) {
	t.Helper()
	name := fmt.Sprintf("%s, %v", s.name, faults)
	resets := s.resets
	for _, f := range faults {
		resets = resets || f.fault > stepReplaces
	}
	t.Run(name, func(t *testing.T) {
		r := newStepRun(t, faults)
		var carry, work sync.WaitGroup
		carry.Go(r.carry)
		first := r.hosts
		client := &stepProgram{name: "the client", data: pattern(1, 50_000), closes: -1}
		var server *stepProgram
		size := segment.Config{Slots: 64, Ring: 1 << 16}
		e, err := r.offers(size)
		if err == nil {
			client.e = e
			if s.client != nil {
				s.client(r, client)
			}
			clientOver := make(chan struct{})
			work.Go(func() {
				defer close(clientOver)
				if s.cancel {
					e.Withdraw()
					_ = e.Close(false)
					client.closed = true
					return
				}
				client.run(r)
			})
			work.Go(func() {
				var o Offer
				select {
				case o = <-first[1].offers:
				case <-clientOver:
					return
				}
				if s.leave {
					o.close(t)
					return
				}
				server = &stepProgram{name: "the server", data: pattern(2, 50_000), closes: -1}
				e, err := r.takes(o, s.refuse)
				if server.e = e; err != nil || s.refuse {
					server.closed = true
					return
				}
				if s.server != nil {
					s.server(r, server)
				}
				server.run(r)
			})
			work.Wait()
		}
		for i := range r.hosts {
			until(t, "the connection is forgotten", func() (gone bool) {
				select {
				case o := <-first[1].offers: // nobody has taken it
					o.close(t)
				default:
				}
				h := r.living()[i]
				done := make(chan bool, 1)
				go func() { done <- h.count() == 0 && h.regions() == 0 }() // the node may be killed meanwhile
				for h == r.living()[i] {
					select {
					case gone = <-done:
						return gone
					case <-time.After(time.Millisecond):
					}
				}
				return false
			})
		}
		r.mu.Lock()
		r.faults = nil
		r.mu.Unlock()
		r.over()
		r.back.Wait()
		for i, h := range r.living() {
			if n := h.engine.Stats().Connections; n != 0 {
				t.Errorf("node %d counts %d connections", i, n)
			}
			r.look(i, func(e *Engine) {
				for _, n := range e.nodes {
					if n.conns != 0 {
						t.Errorf("node %d counts %d connections to its peer", i, n.conns)
					}
				}
			})
		}
		r.mu.Lock()
		steps, hit = r.steps, r.hit
		r.mu.Unlock()
		if client.e != nil {
			checkStepEnd(t, client, server, resets)
			checkStepEnd(t, server, client, resets)
		}
		close(r.end)
		carry.Wait()
		if t.Failed() {
			t.Logf("client: %v, server: %v; faults before %v of %v", client.told(), server.told(), hit, steps)
		}
	})
	return steps, hit
}

// checkStepEnd checks what a program has received, and knows.
func checkStepEnd(t *testing.T, p, from *stepProgram, resets bool) {
	t.Helper()
	if p == nil || p.e == nil {
		return
	}
	sent, direct := []byte(nil), 0
	if from != nil {
		sent, direct = from.data, from.sent-from.back
	}
	switch {
	case !bytes.HasPrefix(sent, p.got):
		t.Errorf("%s has other bytes than were sent", p.name)
	case p.wasReset() && !resets:
		t.Errorf("%s gets a reset", p.name)
	case errors.Is(p.rx, segment.ErrCorrupt):
		t.Errorf("%s finds its node to break the protocol", p.name)
	case p.rx == io.EOF && len(p.got) != len(sent):
		t.Errorf("%s finds the end after %d bytes of %d", p.name, len(p.got), len(sent))
	case p.closed && p.rx == nil || p.wasReset():
	case len(p.got) != direct:
		t.Errorf("%s has %d bytes of %d, and nobody is told", p.name, len(p.got), direct)
	}
}

// offers has the client offer its connection. Its node may be killed meanwhile.
func (r *stepRun) offers(size segment.Config) (*segment.End, error) {
	seg, err := segment.Create(segment.Info{Nonce: segment.NewNonce(), Client: clientAddr, Server: serverAddr}, size)
	if err != nil {
		return nil, err
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	e, err := segment.NewEnd(seg, segment.Client, bells[0], nil)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	fd, err := unix.FcntlInt(uintptr(seg.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	h := r.hosts[0]
	offered := make(chan struct{})
	go func() {
		defer close(offered)
		_ = h.engine.Offer(2, 7, false, fd, bells[1]) // if it fails, the doorbell ends
	}()
	until(r.t, "the node has the offer", func() bool {
		select {
		case <-offered:
			return true
		default:
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.dead[h]
		}
	})
	return e, nil
}

// takes has the server take an offer, or refuse it.
func (r *stepRun) takes(o Offer, refuse bool) (*segment.End, error) {
	seg, err := segment.Map(o.Segment)
	_ = unix.Close(o.Segment)
	if err != nil {
		_ = unix.Close(o.Bell)
		return nil, err
	}
	e, err := segment.NewEnd(seg, segment.Server, o.Bell, nil)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	if !refuse {
		return e, e.Attach()
	}
	e.Withdraw()
	return e, e.Close(false)
}

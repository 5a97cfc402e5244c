package broker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// Client makes a Client of this broker in its own process. The broker believes what it says about
// the addresses of its sockets, because the TCP stack is in this process, too.
func (s *Server) Client(cfg client.Config) (*client.Client, error) {
	w := &localWay{news: make(chan struct{}, 1), done: make(chan struct{})}
	a, err := client.NewAttached(cfg, w.Abort)
	if err != nil {
		return nil, err
	}
	w.client = a
	w.session = &session{s: s, out: w, pid: os.Getpid(), uid: 0, program: a.Program(), since: time.Now(), stats: -1, table: a.Client().Stats(),
		listeners: make(map[uint32]*listener), offers: make(map[wire.Nonce]*offer)}
	w.session.greeted.Store(true)
	if err := s.addSession(w.session); err != nil {
		a.Drop()
		return nil, err
	}
	if !s.countGoroutine() {
		s.dismissSession(w.session)
		a.Drop()
		return nil, wire.ErrClosed
	}
	a.Connected(w, s.page, s.cfg.Node)
	go func() {
		defer s.work.Done()
		w.handleAnswers()
	}()
	return a.Client(), nil
}

// localWay is the way between a Server and a Client in one process, both ways.
type localWay struct {
	client  client.Attached
	session *session

	mu     sync.Mutex
	queue  []answer      // +checklocks:mu
	closed bool          // +checklocks:mu
	news   chan struct{} // holds a token when there is something in queue
	done   chan struct{} // closed by abort
}

// answer is a message for the Client, with descriptors of its own.
type answer struct {
	m   wire.Message
	fds rpc.Descriptors
}

// Ask implements client.Way: the Server does at once what is asked.
func (w *localWay) Ask(m wire.Message, s client.Socket, _ bool, fds ...int) error {
	if m.UDP {
		return fmt.Errorf("%w: UDP goes by its socket only", client.ErrNoBroker)
	}
	own, err := rpc.DupAll(fds...)
	if err != nil {
		return err
	}
	defer own.Close()
	local, remote := plainAddr(s.Local), plainAddr(s.Remote)
	switch c := w.session; m.Type {
	case wire.Listen:
		return c.addListener(m.ID, bound{addr: local.Addr(), port: local.Port()})
	case wire.Unlisten:
		c.removeListener(m.ID)
	case wire.Offer:
		key := wire.Key{Client: local, Server: remote}
		if !key.Valid() {
			return fmt.Errorf("%w: an offer for %v to %v", wire.ErrRule, local, remote)
		}
		return c.takeOffer(m, &offer{key: key}, own, 0)
	case wire.Withdraw:
		c.s.withdrawOffer(c, m.Nonce)
	case wire.Claim:
		return c.handOverSegment(m.ID, wire.Key{Client: remote, Server: local}, shadow{})
	}
	return nil
}

// Post implements replies.
func (w *localWay) Post(b []byte, fds ...int) error {
	var a answer
	if err := a.m.UnmarshalBinary(b); err != nil {
		return err
	}
	var err error
	if a.fds, err = rpc.DupAll(fds...); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		a.fds.Close()
		return net.ErrClosed
	}
	w.queue = append(w.queue, a)
	select {
	case w.news <- struct{}{}:
	default:
	}
	return nil
}

// handleAnswers has the Client handle the answers until abort.
func (w *localWay) handleAnswers() {
	defer w.client.Ended()
	defer w.session.removeClient()
	for {
		select {
		case <-w.news:
		case <-w.done:
		}
		w.mu.Lock()
		queue, closed := w.queue, w.closed
		w.queue = nil
		w.mu.Unlock()
		for _, a := range queue {
			_ = w.client.Handle(a.m, a.fds) // the Server sends nothing else
			a.fds.Close()
		}
		if closed {
			return
		}
	}
}

// Abort implements replies and client.Way: no more answers.
func (w *localWay) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.done)
	}
}

// plainAddr returns the address in its canonical form.
func plainAddr(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

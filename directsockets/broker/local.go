package broker

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Client makes a Client of this broker in its own process. It is taken at its word
// about the addresses of its sockets, as the TCP stack is in this process, too.
func (s *Server) Client(cfg ClientConfig) (*Client, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	w := &localWay{c: c, news: make(chan struct{}, 1), done: make(chan struct{})}
	w.session = &session{s: s, out: w, pid: os.Getpid(), uid: 0, program: c.cfg.Program, since: time.Now(), stats: -1, table: c.stats,
		listeners: make(map[uint32]*listener), offers: make(map[Nonce]*offer)}
	c.stop = w.abort
	if err := s.admit(w.session); err != nil {
		c.stats.seg.Retire()
		return nil, err
	}
	if !s.begin() {
		s.dismiss(w.session)
		c.stats.seg.Retire()
		return nil, ErrClosed
	}
	c.connected(w, s.page, s.cfg.Node)
	go func() {
		defer s.work.Done()
		w.run()
	}()
	return c, nil
}

// localWay is the way between a Server and a Client in one process, both ways.
type localWay struct {
	c       *Client
	session *session

	mu     sync.Mutex
	queue  []answer      // +checklocks:mu
	closed bool          // +checklocks:mu
	news   chan struct{} // holds a token when there is something in queue
	done   chan struct{} // closed by abort
}

// answer is a message for the Client, with descriptors of its own.
type answer struct {
	m   Message
	fds descriptors
}

// ask implements way: the Server does at once what is asked.
func (w *localWay) ask(m Message, s Socket, _ bool, fds ...int) error {
	own := make(descriptors, 0, maxFDs)
	defer func() { own.close() }()
	for _, fd := range fds {
		d, err := dup(fd)
		if err != nil {
			return err
		}
		own = append(own, d)
	}
	local, remote := plainAddr(s.Local), plainAddr(s.Remote)
	switch c := w.session; m.Type {
	case Listen:
		return c.listen(m.ID, bound{addr: local.Addr(), port: local.Port()})
	case Unlisten:
		c.unlisten(m.ID)
	case Offer:
		key := Key{Client: local, Server: remote}
		if !key.valid() {
			return fmt.Errorf("%w: an offer for %v to %v", ErrRule, local, remote)
		}
		return c.offer(m, key, own, 0)
	case Withdraw:
		c.s.withdraw(c, m.Nonce)
	case Claim:
		return c.claim(m.ID, Key{Client: remote, Server: local})
	}
	return nil
}

// post implements replies.
func (w *localWay) post(b []byte, fds ...int) error {
	var a answer
	if err := a.m.UnmarshalBinary(b); err != nil {
		return err
	}
	for _, fd := range fds {
		own, err := dup(fd)
		if err != nil {
			a.fds.close()
			return err
		}
		a.fds = append(a.fds, own)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		a.fds.close()
		return net.ErrClosed
	}
	w.queue = append(w.queue, a)
	select {
	case w.news <- struct{}{}:
	default:
	}
	return nil
}

// run has the Client handle the answers until abort.
func (w *localWay) run() {
	defer close(w.c.done)
	defer w.c.disconnected(ErrNoBroker)
	defer w.session.end()
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
			_ = w.c.handle(a.m, a.fds) // the Server sends nothing else
			a.fds.close()
		}
		if closed {
			return
		}
	}
}

// abort implements replies: no more answers.
func (w *localWay) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.done)
	}
}

// close implements replies and way.
func (w *localWay) close() { w.abort() }

package broker

import (
	"net"
	"sync"

	"exnet/node/rpc"
)

// inbox takes what peers in the same process send, and has it answered by one
// goroutine, in order.
//
// Concurrency: all methods may be called from many goroutines.
type inbox struct {
	mu      sync.Mutex
	queue   []delivery // +checklocks:mu
	running bool       // +checklocks:mu
	closed  bool       // +checklocks:mu
	idle    sync.WaitGroup
}

// delivery is a message in an inbox, with descriptors of its own.
type delivery struct {
	p   *peer // who sent it; as its receiver has it
	m   peerMessage
	fds rpc.Descriptors
	end bool // it sends no more
}

// putMessage takes a message.
func (in *inbox) putMessage(d delivery) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		d.fds.Close()
		return net.ErrClosed
	}
	in.queue = append(in.queue, d)
	if !in.running {
		in.running = true
		in.idle.Go(in.handleMessages)
	}
	return nil
}

func (in *inbox) handleMessages() {
	for {
		in.mu.Lock()
		queue := in.queue
		in.queue = nil
		if len(queue) == 0 {
			in.running = false
			in.mu.Unlock()
			return
		}
		in.mu.Unlock()
		for _, d := range queue {
			if d.end || d.p.s.fromPeer(d.p, d.m, d.fds, false) != nil {
				d.p.s.dropPeer(d.p)
			}
			if len(d.fds) > 0 && d.fds[0] >= 0 { // it was not taken
				d.m.payer.chargeAll(descriptors, -2)
			}
			d.p.trash.Throw(d.fds...)
		}
	}
}

// close waits until what is there has been answered.
func (in *inbox) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.idle.Wait()
}

// localPeer is the way to a peer in the same process: into the inbox of its Server,
// where this broker is known as back.
type localPeer struct {
	to   *inbox
	back *peer
	once sync.Once
}

func (l *localPeer) send(m peerMessage, fds ...int) error {
	d := delivery{p: l.back, m: m}
	var err error
	if d.fds, err = rpc.DupAll(fds...); err != nil {
		return err
	}
	return l.to.putMessage(d)
}

func (l *localPeer) Abort() {
	l.once.Do(func() { _ = l.to.putMessage(delivery{p: l.back, end: true}) }) // or it has ended
}

func (l *localPeer) Close() {}

// Join makes two brokers of this process peers of each other, until one is closed.
func Join(a, b *Server) error {
	_, err := joinServers(a, b)
	return err
}

// joinServers is Join, and returns b as a has it.
func joinServers(a, b *Server) (*peer, error) {
	toA, toB := &localPeer{to: &a.inbox}, &localPeer{to: &b.inbox}
	atA, atB := a.newPeer(b.describeSelf(), toB), b.newPeer(a.describeSelf(), toA)
	toA.back, toB.back = atA, atB
	if err := a.addPeer(atA); err != nil {
		return nil, err
	}
	if err := b.addPeer(atB); err != nil {
		a.dropPeer(atA)
		return nil, err
	}
	return atA, nil
}

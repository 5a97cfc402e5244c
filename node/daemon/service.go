package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/ctxend"
	"exnet/node/control"
	"exnet/node/rpc"
	"exnet/node/rpc/far"
)

// served is what a node offers the processes of its network namespace, together with the same of
// other nodes: a ports.Server or a pool.Server.
type served interface {
	Process(*net.UnixConn) error
	Peer(*net.UnixConn) error
	Hear(from fabric.NodeID, session uint64, b []byte)
	FarDown(n fabric.NodeID, session uint64)
	Close()
}

// offers make what nodes offer programs beside exn0. A file of this package adds each, and can be
// deleted with its part of the project (housetest's TestParts).
var offers []func(*Daemon) (offered, error)

// offered is a service of one kind.
type offered interface {
	about() *service
	// counters are those of its server, a struct of uint64.
	counters() any
	// addStatus adds to what the node says of itself.
	addStatus(*control.Status)
	// answerRequest answers a request. False: it is for another service.
	answerRequest(control.Request, *control.Reply) (bool, error)
	// closeFar gives back what reaches other hosts. run has returned.
	closeFar() error
}

// service has the sockets of a served: one where the nodes of a fabric meet, and those where
// processes of the node's network namespace find it.
//
// Concurrency: all methods may be called from many goroutines; run once.
type service struct {
	what      string // in the log, and before the names of its counters
	without   string // what programs cannot do without it
	suffix    string // makes the name of the socket of the nodes
	socket    string // in the abstract namespace: the first node of a network namespace has it
	registers uint64 // where the node's register file has its counters; 0: nowhere

	refused   atomic.Uint64 // connections of others
	backend   served
	member    *emp.Member
	log       *slog.Logger
	processes []*net.UnixListener
	peers     *net.UnixListener
	far       *far.Engine // nil: there are no other hosts

	mu sync.Mutex
	// downs report to far that the link to a node has ended.
	downs map[fabric.NodeID]func() // +checklocks:mu
}

func (s *service) about() *service           { return s }
func (s *service) addStatus(*control.Status) {}

// openFar opens the mailbox for other hosts, if there are any: cfg says how.
func (s *service) openFar(d *Daemon, cfg far.Config) (err error) {
	s.member, s.log = d.member, d.cfg.Log
	s.mu.Lock()
	s.downs = make(map[fabric.NodeID]func())
	s.mu.Unlock()
	if d.mesh != nil {
		cfg.Hear = func(from fabric.NodeID, session uint64, b []byte) { s.backend.Hear(from, session, b) }
		cfg.Ended = func(n fabric.NodeID, session uint64) { s.backend.FarDown(n, session) }
		s.far, err = far.New(d.nic, cfg)
	}
	return err
}

// dialNode returns the function that connects to the same service of another node of this host.
func (s *service) dialNode(dir string) func(fabric.NodeID) (*net.UnixConn, error) {
	return func(n fabric.NodeID) (*net.UnixConn, error) {
		return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: emp.File(dir, n, s.suffix), Net: "unixpacket"})
	}
}

// listenAll makes the sockets of the server. Each node has one whose name says which node it is.
func (s *service) listenAll(d *Daemon, server served) (err error) {
	s.backend = server
	path := s.member.File(s.suffix)
	if s.peers, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
		return err
	}
	s.peers.SetUnlinkOnClose(false) // it goes with the node's other files
	if err := s.member.Own(path); err != nil {
		return err
	}
	return d.inNamespace(func() error {
		for _, name := range []string{s.socket, fmt.Sprintf("%s-%s-%d", s.socket, d.cfg.Fabric, d.member.ID())} {
			ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
			if errors.Is(err, syscall.EADDRINUSE) {
				s.tellTaken(name)
				continue
			}
			if err != nil {
				return fmt.Errorf("socket of the %s: %w", s.what, err)
			}
			s.processes = append(s.processes, ln)
		}
		return nil
	})
}

// tellTaken says so when a name is another process's. Any user can take one: that does not keep the
// node from starting.
func (s *service) tellTaken(name string) {
	holder, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err == nil {
		err = s.member.Check(holder)
		_ = holder.Close()
	}
	if err == nil && name == s.socket {
		return // another node's of this namespace
	}
	s.log.Warn(s.what+": the socket's name is taken", "name", name, "reason", err)
}

// maxPeers is how many connections the nodes of one user may have to one of this node's sockets.
// Each node makes one.
const maxPeers = 1024

// serveUntil serves processes and peers until ctx ends.
func (s *service) serveUntil(ctx context.Context) error {
	var all sync.WaitGroup
	defer ctxend.Do(ctx, func() { _ = s.close() })() // they may be closed
	serve := func(ln *net.UnixListener, enter func(*net.UnixConn) (leave func(), err error), f func(*net.UnixConn) error) {
		failed := func(err error) { s.log.Warn(s.what+": "+s.without, "reason", err) }
		for conn := range rpc.Accept(ctx, ln, acceptPause, failed) {
			leave, err := enter(conn)
			if err != nil {
				s.refused.Add(1)
				conn.Close()
				continue
			}
			all.Go(func() {
				defer leave()
				if err := f(conn); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					s.log.Debug(s.what, "reason", err)
				}
			})
		}
	}
	if s.far != nil {
		all.Go(func() { _ = s.far.Run(ctx) }) // it returns nil
	}
	gate := rpc.NewGate(maxPeers)
	peers := func(conn *net.UnixConn) (leave func(), err error) {
		if err := s.member.Check(conn); err != nil {
			return nil, err
		}
		return gate.Enter(conn)
	}
	all.Go(func() { serve(s.peers, peers, s.backend.Peer) })
	for _, ln := range s.processes { // whose number the backend bounds
		all.Go(func() { serve(ln, func(*net.UnixConn) (func(), error) { return func() {}, nil }, s.backend.Process) })
	}
	all.Wait()
	return nil
}

// close closes the sockets and ends all that processes have.
func (s *service) close() error {
	var errs []error
	for _, ln := range append(s.processes, s.peers) {
		if ln != nil {
			errs = append(errs, ignoreClosed(ln.Close()))
		}
	}
	if s.backend != nil {
		s.backend.Close()
	}
	return errors.Join(errs...)
}

// closeFar gives the mailbox back. run has returned.
func (s *service) closeFar() error {
	if s.far == nil {
		return nil
	}
	return s.far.Close()
}

// followLink follows a link to a node of another host, until unlinked.
func (s *service) followLink(peer fabric.NodeID) {
	if s.far == nil {
		return
	}
	down := s.far.Linked(peer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.downs[peer] = down
}

// noteUnlinked follows the end of that link.
func (s *service) noteUnlinked(peer fabric.NodeID) {
	s.mu.Lock()
	down := s.downs[peer]
	delete(s.downs, peer)
	s.mu.Unlock()
	if down != nil {
		down()
	}
}

// noteLeft follows a node that has left the fabric.
func (s *service) noteLeft(peer fabric.NodeID) {
	if s.far != nil {
		s.far.Left(peer)
	}
}

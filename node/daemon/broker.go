package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/counter"
	"exnet/internal/ctxend"
	"exnet/node/control"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// brokerSuffix makes the name of the socket by which the brokers of a fabric meet.
const brokerSuffix = ".ds"

// Times between two attempts: to become the broker of the namespace, and to reach a
// peer's.
const (
	brokerRetry = time.Second
	peerRetry   = 100 * time.Millisecond
)

// agentLeaves is for how long an agent may still serve a namespace that a node has reserved. The
// node takes its place within leaveRetry.
const (
	agentLeaves = 3 * time.Second
	leaveRetry  = 20 * time.Millisecond
)

// sockets is the broker of direct sockets of the node's namespace, unless there is
// another one, and its connections to the brokers of the peers.
//
// Concurrency: all methods may be called from many goroutines; run once.
type sockets struct {
	cfg     broker.Config
	dir     string
	self    fabric.NodeID
	member  *emp.Member
	refused *refusals
	log     *slog.Logger
	ln      *net.UnixListener // where the peers' brokers connect to
	carrier *carrier          // set before serveBroker

	mu sync.Mutex
	// told: the last reason for a peer's end that was logged.
	told string // +checklocks:mu
	// addrs: of the interface.
	addrs []netip.Addr // +checklocks:mu
	// server: nil: there is another one.
	server *broker.Server // +checklocks:mu
	closed bool           // +checklocks:mu
	links  sync.WaitGroup
}

// openSockets makes the socket for the peers' brokers. The broker itself comes with
// run.
func (d *Daemon) openSockets() (*sockets, error) {
	s := &sockets{dir: d.cfg.Dir, self: d.member.ID(), member: d.member, refused: &d.refused, log: d.cfg.Log, cfg: d.node.BrokerConfig()}
	s.cfg.Log, s.cfg.Addrs, s.cfg.Switch = d.cfg.Log, nil, new(broker.Switch)
	s.cfg.Owner = d.ownerOf
	s.cfg.CheckPeer = func(conn *net.UnixConn, node uint16) error { return d.member.CheckNode(conn, fabric.NodeID(node)) }
	if d.ns != nil {
		s.cfg.In = d.ns.Do
	}
	path := d.member.File(brokerSuffix)
	var err error
	if s.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
		return nil, err
	}
	s.ln.SetUnlinkOnClose(false) // it goes with the node's other files
	if err := d.member.Own(path); err != nil {
		return s, err
	}
	d.node.OnAddrs(s.setAddrs)
	return s, nil
}

// setAddrs gives the broker the interface's addresses.
func (s *sockets) setAddrs(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs = addrs
	if s.server != nil {
		s.server.SetAddrs(addrs)
	}
}

// serveBroker makes the node the broker of its namespace until ctx ends. The node carries
// packets even if that fails.
func (s *sockets) serveBroker(ctx context.Context) error {
	defer s.waitGoroutines()
	defer ctxend.Do(ctx, func() { s.ln.Close() })()
	if s.countGoroutine() {
		go func() {
			defer s.links.Done()
			s.acceptPeers(ctx)
		}()
	}
	var told string
	var held *broker.Reservation
	leaves := time.Now().Add(agentLeaves)
	defer func() {
		if held != nil {
			_ = held.Close() // what a node that is killed leaves does not matter either
		}
	}()
	for ctx.Err() == nil {
		var b *broker.Server
		var err error
		if held == nil {
			held, err = broker.Reserve(s.cfg.In)
		}
		if err == nil {
			b, err = broker.New(s.cfg)
		}
		if err == nil {
			s.setBroker(b)
			s.carrier.meetAll()
			err = b.Run(ctx)
			s.setBroker(nil)
			err = errors.Join(err, b.Close())
		}
		if errors.Is(err, broker.ErrInUse) && time.Now().Before(leaves) {
			pauseFor(ctx, leaveRetry)
			continue
		}
		if err != nil && err.Error() != told {
			told = err.Error()
			s.log.Warn("this node cannot serve direct sockets", "reason", err)
		}
		pauseFor(ctx, brokerRetry)
	}
	return nil
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *sockets) setBroker(b *broker.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = b
	if b != nil {
		b.SetAddrs(s.addrs)
	}
}

func (s *sockets) broker() *broker.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

// countGoroutine counts a goroutine that run waits for; false: it does not any more.
func (s *sockets) countGoroutine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.links.Add(1)
	}
	return !s.closed
}

func (s *sockets) waitGoroutines() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.links.Wait()
}

// acceptPeers takes the connections of peers with higher IDs.
func (s *sockets) acceptPeers(ctx context.Context) {
	failed := func(err error) { s.log.Warn("direct sockets: brokers of peers cannot connect", "reason", err) }
	gate := rpc.NewGate(maxPeers)
	for conn := range rpc.Accept(ctx, s.ln, peerRetry, failed) {
		leave, err := func() {}, s.member.Check(conn)
		if err == nil {
			leave, err = gate.Enter(conn)
		}
		if err != nil {
			s.refused.Brokers.Add(1)
			s.logPeerEnd(err)
			conn.Close()
			continue
		}
		if !s.countGoroutine() {
			conn.Close()
			return
		}
		go func() {
			defer s.links.Done()
			defer leave()
			s.servePeer(ctx, conn)
		}()
	}
}

// servePeer takes a connection to a peer's broker and serves it until it or ctx ends.
func (s *sockets) servePeer(ctx context.Context, conn *net.UnixConn) {
	b := s.broker()
	if b == nil {
		conn.Close()
		return
	}
	defer ctxend.Do(ctx, func() { conn.Close() })()
	// Reset: it has ended, or does not run yet.
	reset := func(err error) bool { return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) }
	if err := b.Peer(conn); err != nil && ctx.Err() == nil && !errors.Is(err, wire.ErrClosed) && !reset(err) {
		s.logPeerEnd(err)
	}
}

// logPeerEnd logs why a peer's broker is gone or was refused. It logs a repeated reason once.
func (s *sockets) logPeerEnd(err error) {
	s.mu.Lock()
	again := s.told == err.Error()
	s.told = err.Error()
	s.mu.Unlock()
	if !again {
		s.log.Warn("direct sockets: a peer's broker is gone or refused", "reason", err)
	}
}

// ownerOf returns which other node has an address, according to the fabric's directory.
func (d *Daemon) ownerOf(a netip.Addr) (node uint16, ok bool) {
	for _, p := range d.knownPeers() {
		if d.cfg.MACPrefix.MAC(p.Node).LinkLocal() == a || slices.ContainsFunc(p.Addrs, func(pre netip.Prefix) bool { return pre.Addr() == a }) {
			return uint16(p.Node), true
		}
	}
	return 0, false
}

// keepPeerConnected keeps the broker connected to that of a peer as long as the link is up. The
// higher ID connects to the lower.
func (s *sockets) keepPeerConnected(peer fabric.NodeID, l emp.Link) {
	if s.self < peer || !s.countGoroutine() {
		return
	}
	go func() {
		defer s.links.Done()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			defer cancel()
			select {
			case <-l.Done():
			case <-ctx.Done():
			}
		}()
		for ctx.Err() == nil {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unixpacket", emp.File(s.dir, peer, brokerSuffix))
			if err == nil {
				s.servePeer(ctx, conn.(*net.UnixConn))
			}
			pauseFor(ctx, peerRetry)
		}
	}()
}

// close closes the socket for the peers.
func (s *sockets) close() error {
	err := ignoreClosed(s.ln.Close())
	return err
}

// Sockets returns the direct sockets of the node's namespace, and those that could be
// direct and are not.
func (d *Daemon) Sockets() *control.Sockets {
	s := &control.Sockets{Node: int(d.member.ID()), Connections: []connstats.Connection{}}
	if b := d.sockets.broker(); b != nil {
		s.Broker, s.Connections, s.SetUp = b.Path(), b.Connections(), b.SetUpTimes()
	}
	list, _ := d.carrier.engine.Connections() // closed: there are none
	goneBack(s.Connections, list)
	s.Relayed = relayedOf(list)
	return s
}

// sharedTraffic returns the traffic of programs here through shared memory, by the node of the
// other end, in ascending order. It leaves out connections from and to addresses outside the
// fabric, such as the loopback interface's.
func (d *Daemon) sharedTraffic() []control.Shared {
	list := []control.Shared{}
	b := d.sockets.broker()
	if b == nil {
		return list
	}
	totals := make(map[int]connstats.Total)
	for a, t := range b.Shared() {
		node, known := d.ownerOf(a)
		if !known && d.sockets.hasAddress(a) {
			node, known = uint16(d.member.ID()), true
		}
		if known {
			totals[int(node)] = totals[int(node)].Plus(t)
		}
	}
	for node, t := range totals {
		list = append(list, control.Shared{Node: node, Total: t})
	}
	slices.SortFunc(list, func(a, b control.Shared) int { return a.Node - b.Node })
	return list
}

// hasAddress reports whether the interface has an address.
func (s *sockets) hasAddress(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.addrs, a)
}

// addShared adds it to the counters.
func addShared(c *counter.List, shared []control.Shared) {
	for _, s := range shared {
		c.Add(fmt.Sprintf("shared.node%d.", s.Node), func(yield func(string, uint64) bool) {
			_ = yield("bytes_received", s.Received.Bytes) && yield("bytes_sent", s.Sent.Bytes) &&
				yield("messages_received", s.Received.Messages) && yield("messages_sent", s.Sent.Messages)
		})
	}
}

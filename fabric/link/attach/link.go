package attach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/rma"
	"exnet/internal/shm"
)

// socketEnv names the node's socket; without it, it is defaultSocket of the network namespace.
const (
	socketEnv     = "EXN_PORTS"
	defaultSocket = "@exn-ports"
)

// NIC is what the link needs of its NIC.
type NIC interface {
	AcceptFlow(src fabric.NodeID, from, to fabric.VPID, c link.Credit) (link.Flow, error)
	// Tell is rma.Unit.Tell.
	Tell(to fabric.VPID, n rma.Notification, isOurs func() bool) bool
}

// Link is the way of a NIC to the ports of its node's host.
type Link struct {
	socket string
	node   fabric.NodeID
	nic    NIC
	arena  *shm.Arena
	list   atomic.Pointer[[]*port] // the open ports; a slice is not changed
	groups groups

	mu     sync.Mutex
	ports  map[key]*port    // +checklocks:mu
	lent   map[atu.NLA]loan // +checklocks:mu
	closed bool             // +checklocks:mu
}

// key names a port of this program.
type key struct {
	unit wire.Unit
	vpid fabric.VPID
}

// New asks the node of this network namespace, or that whose socket is given or named by
// EXN_PORTS, who it is. The error wraps fabric.ErrNoRoute if there is none, or it is another
// user's.
func New(socket string) (*Link, error) {
	if socket == "" {
		socket = os.Getenv(socketEnv)
	}
	if socket == "" {
		socket = defaultSocket
	}
	arena, err := shm.NewSharedArena("exnet-port-memory", wire.MemorySize, wire.ArenaOff)
	if err != nil {
		return nil, err
	}
	l := &Link{socket: socket, arena: arena, ports: make(map[key]*port), lent: make(map[atu.NLA]loan)}
	l.list.Store(new([]*port))
	p, err := l.openPort(key{fabric.UnitVELO, 0})
	if err != nil {
		arena.Retire()
		return nil, err
	}
	l.node = p.node
	p.close()
	return l, nil
}

// Node is the node's ID.
func (l *Link) Node() fabric.NodeID { return l.node }

// Arena is the memory that peers can use.
func (l *Link) Arena() *shm.Arena { return l.arena }

// Serve has what arrives go to n. It comes before Open.
func (l *Link) Serve(n NIC) { l.nic = n }

// Open opens a port at the node. The error wraps fabric.ErrInUse if another program of the
// node has the VPID.
func (l *Link) Open(u wire.Unit, v fabric.VPID) error {
	if !v.Valid() || v < wire.FirstVPID {
		return fmt.Errorf("attach: open: VPID %d: programs use %d to %d: %w", v, wire.FirstVPID, fabric.VPIDs-1, fabric.ErrInvalid)
	}
	k := key{u, v}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("attach: open: %w", fabric.ErrClosed)
	case l.ports[k] != nil:
		return fmt.Errorf("attach: open: VPID %d: %w", v, fabric.ErrInUse)
	}
	p, err := l.openPort(k)
	if err != nil {
		return err
	}
	l.ports[k] = p
	l.changedLocked()
	if u == fabric.UnitRMA {
		for nla, n := range l.lent {
			if n.vpid == v {
				p.showRegion(nla, n)
			}
		}
	}
	go p.read()
	go p.listen()
	return nil
}

// changedLocked makes the list of ports anew.
//
// +checklocks:l.mu
func (l *Link) changedLocked() {
	list := make([]*port, 0, len(l.ports))
	for _, p := range l.ports {
		list = append(list, p)
	}
	l.list.Store(&list)
}

// Shut closes a port, whose endpoint has been closed.
func (l *Link) Shut(u wire.Unit, v fabric.VPID) {
	l.mu.Lock()
	p := l.ports[key{u, v}]
	delete(l.ports, key{u, v})
	l.changedLocked()
	l.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// Close closes all ports, and opens no more.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	all := *l.list.Load()
	clear(l.ports)
	l.changedLocked()
	l.mu.Unlock()
	for _, p := range all {
		p.close()
	}
}

func (l *Link) port(u wire.Unit, v fabric.VPID) *port {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ports[key{u, v}]
}

// Poll implements link.Active.
func (l *Link) Poll() {
	for _, p := range *l.list.Load() {
		p.poll()
	}
}

// Arm implements link.Active.
func (l *Link) Arm() {
	for _, p := range *l.list.Load() {
		p.armBell()
	}
}

// Mailbox implements link.Active: the port of a mailbox that is closed goes.
func (l *Link) Mailbox(v fabric.VPID, limit int) {
	if limit == 0 {
		l.Shut(fabric.UnitVELO, v)
	}
}

// To returns the port of the NIC that leads to a node of the host.
func (l *Link) To(n fabric.NodeID) link.Port { return way{l, n} }

// way is the way to a node.
type way struct {
	l  *Link
	to fabric.NodeID
}

// connect returns the grant of a peer.
func (w way) connect(u wire.Unit, from, to fabric.VPID) (*grant, error) {
	p := w.l.port(u, from)
	if p == nil {
		return nil, fmt.Errorf("attach: VPID %d: %w", from, fabric.ErrClosed)
	}
	return p.connect(wire.Addr{Node: w.to, VPID: to})
}

// Absent implements link.Sparse.
func (w way) Absent(from, to fabric.VPID) bool {
	p := w.l.port(fabric.UnitVELO, from)
	return p != nil && p.missing(wire.Addr{Node: w.to, VPID: to})
}

// OpenFlow implements link.Port.
func (w way) OpenFlow(from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	g, err := w.connect(fabric.UnitVELO, from, to)
	if err != nil {
		return nil, err
	}
	g.begin.Store(g.next.Load())
	g.credit.Store(&c)
	return g, nil
}

// Get implements link.Port.
func (w way) Get(g link.Get, s link.Sink) {
	peer, err := w.connect(fabric.UnitRMA, g.From, g.To)
	if err != nil {
		s.Done(statusOf(err))
		return
	}
	s.Done(peer.runGet(g, s))
}

// Put implements link.Port.
func (w way) Put(p link.Put, data []byte, d link.Done) {
	peer, err := w.connect(fabric.UnitRMA, p.From, p.To)
	if err != nil {
		d.Done(statusOf(err))
		return
	}
	d.Done(peer.runPut(p, data))
}

// statusOf is the status of an operation that has not begun.
func statusOf(err error) fabric.Status {
	switch {
	case errors.Is(err, fabric.ErrProtection):
		return fabric.StatusProtection
	case errors.Is(err, errNoPort):
		return fabric.StatusNoVPID
	}
	return fabric.StatusPeerDown
}

var errNoPort = fmt.Errorf("attach: nobody has opened the VPID: %w", fabric.ErrPeerDown)

// errorOf is the error of a request that the node has refused.
func errorOf(s wire.Status) error {
	switch s {
	case wire.StatusOK:
		return nil
	case wire.StatusNoPort:
		return errNoPort
	case wire.StatusDenied:
		return fmt.Errorf("attach: the port is another user's: %w", fabric.ErrProtection)
	case wire.StatusFull:
		return fmt.Errorf("attach: the node has no port left for this user: %w", fabric.ErrAgain)
	case wire.StatusNoNode:
		return fmt.Errorf("attach: no such node on this host: %w", fabric.ErrNoRoute)
	case wire.StatusInUse:
		return fmt.Errorf("attach: another program has the VPID: %w", fabric.ErrInUse)
	case wire.StatusVersion:
		return fmt.Errorf("attach: the node is of another version: %w", fabric.ErrNoRoute)
	}
	return fmt.Errorf("attach: the node refuses: status %d: %w", s, fabric.ErrInvalid)
}

// dialNode connects to a node's socket.
func dialNode(socket string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("attach: no node here (exn-tun up): %w: %w", fabric.ErrNoRoute, err)
	}
	if err := trusted(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

var (
	_ link.Active = (*Link)(nil)
	_ link.Port   = way{}
	_ link.Sparse = way{}
	_ atu.Table   = (*Link)(nil)
)

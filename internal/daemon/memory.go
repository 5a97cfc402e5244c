package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/accept"
	"exnet/internal/control"
	"exnet/internal/ctxend"
	"exnet/memory/pool"
	"exnet/ports/far"
)

// memorySuffix makes the name of the socket by which the lenders of a fabric meet, and
// memorySocket is where processes of the node's network namespace find it, as portsSuffix and
// portsSocket.
const (
	memorySuffix = ".memory"
	memorySocket = "@exn-memory"
)

// nodeMemory lends memory of the node's host, and borrows for the processes of its network
// namespace.
//
// Concurrency: all methods may be called from many goroutines; run once.
type nodeMemory struct {
	server    *pool.Server
	member    *emp.Member
	refused   *refusals
	log       *slog.Logger
	processes []*net.UnixListener
	peers     *net.UnixListener
	far       *far.Engine // nil: there are no other hosts
	ended     chan struct{}
	end       sync.Once
}

// openMemory makes the sockets.
func (d *Daemon) openMemory() (*nodeMemory, error) {
	m := &nodeMemory{member: d.member, refused: &d.refused, log: d.cfg.Log, ended: make(chan struct{})}
	cfg := pool.Config{
		Node: d.member.ID(), Limits: d.cfg.Lend.Limits, MaxTime: d.cfg.Lend.Time,
		Dial: func(n fabric.NodeID) (*net.UnixConn, error) {
			return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: emp.File(d.cfg.Dir, n, memorySuffix), Net: "unixpacket"})
		},
		CheckPeer: d.member.CheckNode,
		Nodes:     d.neighbors,
		Log:       d.cfg.Log,
	}
	var err error
	if d.mesh != nil {
		if m.far, err = far.NewAt(d.nic, far.MemoryVPID, func(from fabric.NodeID, b []byte) { m.server.Hear(from, b) }); err != nil {
			return m, err
		}
		cfg.Far, cfg.NIC = m.far, d.nic
	}
	m.server = pool.New(cfg)
	path := d.member.File(memorySuffix)
	if m.peers, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
		return m, err
	}
	m.peers.SetUnlinkOnClose(false) // it goes with the node's other files
	if err := d.member.Own(path); err != nil {
		return m, err
	}
	in := func(f func() error) error { return f() }
	if d.ns != nil {
		in = d.ns.Do
	}
	return m, in(func() error {
		for _, name := range []string{memorySocket, fmt.Sprintf("%s-%s-%d", memorySocket, d.cfg.Fabric, d.member.ID())} {
			ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
			if errors.Is(err, syscall.EADDRINUSE) {
				continue // another node's of this namespace, or anybody's: a program checks whose it is
			}
			if err != nil {
				return fmt.Errorf("socket of the memory: %w", err)
			}
			m.processes = append(m.processes, ln)
		}
		return nil
	})
}

// neighbors are the nodes that may lend memory, nearest first.
func (d *Daemon) neighbors() (near []pool.Neighbor) {
	here := make(map[fabric.NodeID]bool)
	for _, p := range d.member.Peers() {
		here[p.Node] = true
	}
	for _, p := range d.known() {
		if p.State == emp.Up {
			near = append(near, pool.Neighbor{Node: p.Node, Hops: d.hops(p.Node), Far: !here[p.Node]})
		}
	}
	slices.SortStableFunc(near, func(a, b pool.Neighbor) int { return cmp.Compare(a.Hops, b.Hops) })
	return near
}

// run serves processes and peers until ctx ends.
func (m *nodeMemory) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer ctxend.Do(ctx, func() { _ = m.close() })() // they may be closed
	serve := func(ln *net.UnixListener, check func(*net.UnixConn) error, f func(*net.UnixConn) error) {
		failed := func(err error) { m.log.Warn("memory: programs cannot borrow", "reason", err) }
		for conn := range accept.All(ctx, ln, acceptPause, failed) {
			if err := check(conn); err != nil {
				m.refused.Memory.Add(1)
				conn.Close()
				continue
			}
			all.Go(func() {
				if err := f(conn); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					m.log.Debug("memory", "reason", err)
				}
			})
		}
	}
	if m.far != nil {
		all.Go(func() { _ = m.far.Run(ctx) }) // it returns nil
	}
	all.Go(func() { serve(m.peers, m.member.Check, m.server.Peer) })
	for _, ln := range m.processes {
		all.Go(func() { serve(ln, func(*net.UnixConn) error { return nil }, m.server.Process) })
	}
	all.Wait()
	return nil
}

// close closes the sockets and ends all leases.
func (m *nodeMemory) close() error {
	var errs []error
	for _, ln := range append(m.processes, m.peers) {
		if ln != nil {
			errs = append(errs, ignoreClosed(ln.Close()))
		}
	}
	if m.server != nil {
		m.server.Close()
	}
	return errors.Join(errs...)
}

// closeFar gives the mailbox back. run has returned.
func (m *nodeMemory) closeFar() error {
	m.end.Do(func() { close(m.ended) })
	if m.far == nil {
		return nil
	}
	return m.far.Close()
}

// linked follows a link to a node of another host to its end.
func (m *nodeMemory) linked(peer fabric.NodeID, l emp.Link) {
	go func() {
		select {
		case <-l.Done():
			m.server.FarDown(peer)
		case <-m.ended:
		}
	}()
}

// status is what the node lends and has borrowed.
func (m *nodeMemory) status() control.Memory {
	s := m.server.Status()
	convert := func(all []pool.Lease) []control.Lease {
		list := make([]control.Lease, 0, len(all))
		for _, l := range all {
			list = append(list, control.Lease(l))
		}
		return list
	}
	return control.Memory{LendLimits: control.LendLimits(s.Limits), Lent: convert(s.Lent), Borrowed: convert(s.Borrowed)}
}

// Leases shows or changes what the node lends.
func (d *Daemon) Leases(req control.LeaseRequest) (*control.Leases, error) {
	s := d.memory.server
	a := &control.Leases{Node: int(d.member.ID())}
	switch req.Want {
	case control.LeaseList:
	case control.LeaseGrant:
		l, err := lendLimits(pool.Limits(req.Grant))
		if err != nil {
			return nil, err
		}
		s.SetLimits(l)
	case control.LeaseRevoke:
		if req.Within < 0 {
			return nil, fmt.Errorf("%w: a time of %v", ErrConfig, req.Within)
		}
		a.Revoked = s.Revoke(func(l pool.Lease) bool { return req.Matches(control.Lease(l)) }, req.Within)
		if a.Revoked == 0 && req.ID != 0 {
			return nil, fmt.Errorf("node %d has no lease %d that is not revoked yet: exn-tun lease list shows them", a.Node, req.ID)
		}
	default:
		return nil, fmt.Errorf("unknown request %q for leases", req.Want)
	}
	a.Memory = d.memory.status()
	return a, nil
}

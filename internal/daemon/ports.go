package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/accept"
	"exnet/internal/control"
	"exnet/internal/ctxend"
	"exnet/ports"
	"exnet/ports/far"
)

// portsSuffix makes the name of the socket by which the port servers of a fabric meet.
const portsSuffix = ".ports"

// portsSocket is the name in the abstract namespace where processes of the node's network
// namespace find it; $EXN_PORTS names another. The first node of a namespace has it, and each
// has one that says which node it is.
const portsSocket = "@exn-ports"

// nodePorts serves the ports of the node's NIC to the processes of its network namespace.
//
// Concurrency: all methods may be called from many goroutines; run once.
type nodePorts struct {
	server    *ports.Server
	member    *emp.Member
	refused   *refusals
	log       *slog.Logger
	processes []*net.UnixListener
	peers     *net.UnixListener
	far       *far.Engine // nil: there are no other hosts
	ended     chan struct{}
	end       sync.Once
}

// openPorts makes the sockets.
func (d *Daemon) openPorts() (*nodePorts, error) {
	p := &nodePorts{member: d.member, refused: &d.refused, log: d.cfg.Log, ended: make(chan struct{})}
	cfg := ports.Config{
		Node: d.member.ID(),
		Dial: func(n fabric.NodeID) (*net.UnixConn, error) {
			return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: emp.File(d.cfg.Dir, n, portsSuffix), Net: "unixpacket"})
		},
		CheckPeer: d.member.CheckNode,
		Registers: registerFile{d},
		Members:   func(g fabric.GroupID) []fabric.NodeID { return d.nic.Routes().Members(g) },
	}
	var err error
	if d.mesh != nil {
		if p.far, err = far.New(d.nic, func(from fabric.NodeID, b []byte) { p.server.Hear(from, b) }); err != nil {
			return p, err
		}
		cfg.Far = p.far
	}
	p.server = ports.New(cfg)
	path := d.member.File(portsSuffix)
	if p.peers, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
		return p, err
	}
	p.peers.SetUnlinkOnClose(false) // it goes with the node's other files
	if err := d.member.Own(path); err != nil {
		return p, err
	}
	in := func(f func() error) error { return f() }
	if d.ns != nil {
		in = d.ns.Do
	}
	return p, in(func() error {
		for _, name := range []string{portsSocket, fmt.Sprintf("%s-%s-%d", portsSocket, d.cfg.Fabric, d.member.ID())} {
			ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
			if errors.Is(err, syscall.EADDRINUSE) {
				p.taken(name)
				continue
			}
			if err != nil {
				return fmt.Errorf("socket of the ports: %w", err)
			}
			p.processes = append(p.processes, ln)
		}
		return nil
	})
}

// taken says so when a name is another process's. Any user can take one: that does not keep the
// node from starting.
func (p *nodePorts) taken(name string) {
	holder, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err == nil {
		err = p.member.Check(holder)
		_ = holder.Close()
	}
	if err == nil && name == portsSocket {
		return // another node's of this namespace
	}
	p.log.Warn("ports: the socket's name is taken", "name", name, "reason", err)
}

// run serves processes and peers until ctx ends.
func (p *nodePorts) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer ctxend.Do(ctx, func() { _ = p.close() })() // they may be closed
	serve := func(ln *net.UnixListener, check func(*net.UnixConn) error, f func(*net.UnixConn) error) {
		failed := func(err error) { p.log.Warn("ports: programs cannot use the NIC", "reason", err) }
		for conn := range accept.All(ctx, ln, acceptPause, failed) {
			if err := check(conn); err != nil {
				p.refused.Ports.Add(1)
				conn.Close()
				continue
			}
			all.Go(func() {
				if err := f(conn); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
					p.log.Debug("ports", "reason", err)
				}
			})
		}
	}
	if p.far != nil {
		all.Go(func() { _ = p.far.Run(ctx) }) // it returns nil
	}
	all.Go(func() { serve(p.peers, p.member.Check, p.server.Peer) })
	for _, ln := range p.processes {
		all.Go(func() { serve(ln, func(*net.UnixConn) error { return nil }, p.server.Process) })
	}
	all.Wait()
	return nil
}

// close closes the sockets and ends all ports.
func (p *nodePorts) close() error {
	var errs []error
	for _, ln := range append(p.processes, p.peers) {
		if ln != nil {
			errs = append(errs, ignoreClosed(ln.Close()))
		}
	}
	if p.server != nil {
		p.server.Close()
	}
	return errors.Join(errs...)
}

// closeFar gives the mailbox back. run has returned.
func (p *nodePorts) closeFar() error {
	p.end.Do(func() { close(p.ended) })
	if p.far == nil {
		return nil
	}
	return p.far.Close()
}

// linked follows a link to a node of another host to its end.
func (p *nodePorts) linked(peer fabric.NodeID, l emp.Link) {
	go func() {
		select {
		case <-l.Done():
			p.server.FarDown(peer)
		case <-p.ended:
		}
	}()
}

// Ports returns the open ports of the node.
func (d *Daemon) Ports() *control.Ports {
	return &control.Ports{Node: int(d.member.ID()), Ports: d.ports.server.Ports()}
}

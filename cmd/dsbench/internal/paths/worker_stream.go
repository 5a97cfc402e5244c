package paths

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/ofi"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
	"exnet/internal/ctxend"
	"exnet/internal/netns"
	"exnet/internal/sched"
	"exnet/napi"
	"exnet/node"
	"exnet/node/hostnet"
	"exnet/node/txloop"
)

// streamJob is a node on a host of its own. The first listens for the second.
type streamJob struct {
	Node  NodeConfig `json:"node"`
	Index int        `json:"index"` // 0 or 1
	Host  string     `json:"host"`  // path of the namespace
	OFI   bool       `json:"ofi"`   // libfabric's tcp carries the link
}

const (
	streamPort = 4791
	dialTime   = 5 * time.Second // how long the hosts may take to reach each other
	// linkCongestion is the congestion control of the link's TCP: what --congestion is
	// unless told otherwise. The system's may send at a pace: with bbr a gigabyte took
	// 1.3 CPU seconds instead of 0.8.
	linkCongestion = "cubic"
)

// runStream holds a node with an exn0 until ctx is done. The result says nothing.
func runStream(ctx context.Context, j streamJob, note func(any) error) (_ any, err error) {
	host, err := netns.Open(j.Host)
	if err != nil {
		return nil, err
	}
	defer host.Close()
	if j.Node.Mode != napi.ModeBusyPoll {
		_ = sched.Realtime() // as in runNodes
	}
	card, err := nic.New(nic.Config{Node: fabric.NodeID(1 + j.Index)})
	if err != nil {
		return nil, err
	}
	defer card.Close()
	if err := mem.NewFabric().Attach(card); err != nil { // the way to itself
		return nil, err
	}
	var loop atomic.Pointer[txloop.Loop]
	n, err := node.New(node.Config{
		NS: host, NIC: card, Addrs: []netip.Prefix{node.Addr4(j.Index), node.Addr6(j.Index)},
		MTU: j.Node.MTU, NoFastPath: j.Node.NoFastPath, EagerThreshold: j.Node.EagerThreshold,
		OnReady: func() {
			if l := loop.Load(); l != nil {
				l.Wake()
			}
		},
	})
	if err != nil {
		return nil, withoutTUN(err)
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := errors.Join(n.Interface.SetCoalesce(j.Node.Coalesce), n.Interface.SetMode(j.Node.Mode)); err != nil {
		return nil, err
	}
	l, err := txloop.New(txloop.Config{Ports: []txloop.Port{n.Port()}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	loop.Store(l)

	up := nodeUp{Namespace: host.Path(), Addr: node.Addr4(j.Index).Addr(), MTU: n.Interface.MTU()}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return n.Interface.Run(ctx) })
	all.Go(func() error { return l.Run(ctx) })
	all.Go(func() error { return linkHost(ctx, j, host, card, l, func() error { return note(up) }) })
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("a node's data path ended: %w", err)
	}
	return struct{}{}, nil
}

// linkHost joins the node with that of the other host until ctx is done. The first host
// is ready when it listens, the second when it is linked.
func linkHost(ctx context.Context, j streamJob, host *netns.NS, card *nic.NIC, l *txloop.Loop, ready func() error) error {
	conn, err := meet(ctx, j.Index, host, ready)
	if err != nil {
		if ctx.Err() != nil {
			return nil // it is to end before they have met
		}
		return err
	}
	cfg := stream.Config{Peer: fabric.NodeID(2 - j.Index), Conns: []net.Conn{conn}, Driver: l}
	if j.OFI {
		err = host.Do(func() error { // the helper is to be there, too
			e, err := ofi.Join(ctx, conn, ofi.Config{Self: card.ID(), Peer: cfg.Peer, Provider: "tcp"})
			if err == nil {
				cfg.Engine = e
			}
			return err
		})
		if err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	link, err := stream.New(card, cfg)
	if err != nil {
		return err
	}
	if j.Index == 1 {
		err = ready()
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-link.Done():
			err = link.Err()
			if errors.Is(err, stream.ErrGone) {
				err = nil // the other end knows why
			}
		}
	}
	_ = link.Close() // it may be down
	<-link.Done()
	return err
}

// meet makes the connection of the two hosts.
func meet(ctx context.Context, index int, host *netns.NS, ready func() error) (c net.Conn, err error) {
	addr := netip.AddrPortFrom(hostAddr(0), streamPort).String()
	control := hostnet.ControlCongestion(linkCongestion)
	if index == 1 {
		d := net.Dialer{Timeout: dialTime, Control: control}
		err = host.Do(func() (err error) { c, err = d.DialContext(ctx, "tcp4", addr); return err })
		return c, err
	}
	var ln net.Listener
	l := net.ListenConfig{Control: control}
	if err := host.Do(func() (err error) { ln, err = l.Listen(ctx, "tcp4", addr); return err }); err != nil {
		return nil, err
	}
	defer ln.Close()
	defer ctxend.Do(ctx, func() { ln.Close() })()
	if err := ready(); err != nil {
		return nil, err
	}
	return ln.Accept()
}

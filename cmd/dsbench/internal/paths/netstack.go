package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"exnet/exn"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/internal/tcpbench"
	"exnet/internal/worker"
	"exnet/ipstack"
	"exnet/mtu"
	"exnet/node"
)

// netstackPath is netstack's TCP over the fabric, without a TUN device, without
// the kernel and without privileges: what a Go program has that brings its own
// IP stack. Both nodes and both ends share a worker process, as they do in such
// a program's tests; every run has a process of its own.
type netstackPath struct {
	cfg NodeConfig
}

func newNetstack(cfg NodeConfig) Path { return &netstackPath{cfg} }

func (p *netstackPath) Info() Info {
	return Info{MTU: int(cmp.Or(p.cfg.MTU, mtu.Default)), Unbound: true}
}

func (p *netstackPath) Setup(context.Context) error { return nil }

func (p *netstackPath) Close() error { return nil }

// Measure implements Path.
func (p *netstackPath) Measure(ctx context.Context, spec tcpbench.Spec) (r tcpbench.Result, err error) {
	err = spec.Bound(ctx, func(ctx context.Context) error {
		w, err := worker.Start(ctx, nil, netstackCommand, netstackJob{Node: p.cfg, Spec: spec})
		if err != nil {
			return err
		}
		defer w.Stop()
		return w.Result(&r)
	})
	return r, err
}

// netstackJob is one measurement over netstack.
type netstackJob struct {
	Node NodeConfig    `json:"node"`
	Spec tcpbench.Spec `json:"spec"`
}

// runNetstack does the jobs of both ends, over the TCP of two netstacks on a
// fabric in this process, each a node without a host.
func runNetstack(j netstackJob) (result tcpbench.Result, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	var open []io.Closer
	defer func() {
		cancel()
		err = errors.Join(err, group.Wait()) // no frame is received any more
		for _, c := range slices.Backward(open) {
			err = errors.Join(err, c.Close())
		}
	}()
	wire := mem.NewFabric()
	var stacks [2]*ipstack.Stack
	for i := range stacks {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(1 + i)})
		if err != nil {
			return result, err
		}
		open = append(open, card)
		if err := wire.Attach(card); err != nil {
			return result, err
		}
		intf, err := exn.New(exn.Config{NIC: card, MTU: j.Node.MTU, EagerThreshold: j.Node.EagerThreshold})
		if err != nil {
			return result, err
		}
		open = append(open, intf)
		if stacks[i], err = ipstack.New(ipstack.Config{Link: intf, CongestionControl: j.Spec.Congestion}); err != nil {
			return result, err
		}
		open = append(open, stacks[i])
		intf.SetReceiver(stacks[i])
		// As on the kernel's sockets: Nagle's algorithm for a stream only.
		nagle := tcpip.TCPDelayEnabled(j.Spec.Nagle())
		if terr := stacks[i].Netstack().SetTransportProtocolOption(tcp.ProtocolNumber, &nagle); terr != nil {
			return result, fmt.Errorf("netstack: Nagle's algorithm: %v", terr)
		}
		if err := stacks[i].AddAddress(node.Addr4(i)); err != nil {
			return result, err
		}
		group.Go(func() error { return intf.Run(ctx) })
	}
	l, err := stacks[1].Listen("tcp", netip.AddrPortFrom(node.Addr4(1).Addr(), 0).String())
	if err != nil {
		return result, err
	}
	defer l.Close()
	address := l.Addr().String()
	return tcpbench.InProcess(j.Spec,
		func() (io.ReadWriteCloser, error) {
			return stacks[0].DialContext(context.Background(), "tcp", address)
		},
		func() (io.ReadWriteCloser, error) { return l.Accept() }, l.Close)
}

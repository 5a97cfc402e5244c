package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/ctxend"
	"exnet/internal/netns"
	"exnet/internal/sched"
	"exnet/mtu"
	"exnet/node"
	"exnet/node/hostnet"
	"exnet/node/tun"
)

// relayPath is TCP between two namespaces whose TUN devices a loop joins that does
// nothing else: what is left of exn0 without a fabric, and so what exn0 is measured
// by.
type relayPath struct {
	nodePath
}

func newRelay(cfg NodeConfig) Path {
	return &relayPath{newNodePath(NodeConfig{MTU: cfg.MTU})}
}

// Info implements Path.
func (p *relayPath) Info() Info { return Info{MTU: p.mtu} }

func (p *relayPath) Setup(ctx context.Context) error {
	var up [2]nodeUp
	if err := p.startWorker(ctx, nil, relayCommand, p.cfg, &up); err != nil {
		return err
	}
	return p.joinNodes(up)
}

// relayEnd is a TUN device in a namespace of its own.
type relayEnd struct {
	ns  *netns.NS
	dev *tun.Device
}

// runRelay joins two TUN devices until ctx is done, as a process of its own, like
// runNodes. The result says nothing.
func runRelay(ctx context.Context, cfg NodeConfig, note func(any) error) (_ any, err error) {
	_ = sched.Realtime() // as runNodes
	var ends [2]relayEnd
	defer func() {
		for _, e := range ends {
			err = errors.Join(err, e.close())
		}
	}()
	var up [2]nodeUp
	for i := range ends {
		if up[i], err = ends[i].open(i, int(cmp.Or(cfg.MTU, mtu.Default))); err != nil {
			return nil, err
		}
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(stop)
	defer ctxend.Do(ctx, func() {
		one := [8]byte{1}
		_, _ = unix.Write(stop, one[:]) // cannot fail: the counter is 0
	})()
	if err := note(up); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	return struct{}{}, relayPackets(stop, [2]*tun.Device{ends[0].dev, ends[1].dev})
}

func (e *relayEnd) open(i, size int) (up nodeUp, err error) {
	if e.ns, err = netns.New(); err != nil {
		return up, err
	}
	err = e.ns.Do(func() (err error) {
		e.dev, err = tun.Open(tun.Config{MTU: size, OwnPoller: true})
		return err
	})
	if err != nil {
		return up, err
	}
	host, err := hostnet.Open(e.ns)
	if err != nil {
		return up, err
	}
	defer host.Close()
	addr := node.Addr4(i)
	err = host.Configure(e.dev.Index(), hostnet.LinkConfig{
		MTU: size, TxQueueLen: hostnet.TxQueueLen, Addrs: []netip.Prefix{addr}, NoAutoLinkLocal: true,
	})
	return nodeUp{Namespace: e.ns.Path(), Addr: addr.Addr(), MTU: size}, err
}

func (e *relayEnd) close() (err error) {
	if e.dev != nil {
		err = e.dev.Close()
	}
	if e.ns != nil {
		err = errors.Join(err, e.ns.Close())
	}
	return err
}

// relayPackets passes packets on, with their virtio-net headers, until stop is readable. All
// go through one buffer, which stays in the cache.
func relayPackets(stop int, devs [2]*tun.Device) error {
	buf := make([]byte, tun.BufferLen)
	fds := []unix.PollFd{
		{Fd: int32(devs[0].Fd()), Events: unix.POLLIN},
		{Fd: int32(devs[1].Fd()), Events: unix.POLLIN},
		{Fd: int32(stop), Events: unix.POLLIN},
	}
	for {
		passed := false
		for i, d := range devs {
			n, err := d.Read(buf)
			switch {
			case errors.Is(err, tun.ErrAgain):
				continue
			case err != nil:
				return err
			}
			passed = true
			// What the other device does not take is lost, as on a wire.
			err = devs[1-i].Write(buf[:tun.VnetHdrLen], foreign.Private(buf[tun.VnetHdrLen:n]))
			if errors.Is(err, tun.ErrGone) || errors.Is(err, tun.ErrClosed) {
				return err
			}
		}
		if passed {
			continue
		}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %w", err)
		}
		if fds[2].Revents != 0 {
			return nil
		}
	}
}

package exntun

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"exnet/internal/hostnet"
	"exnet/internal/netns"
	"exnet/internal/node"
	"exnet/internal/sched"
	"exnet/internal/tcpbench"
)

// family is a version of IP.
type family int

const (
	v4 family = 4
	v6 family = 6
)

func (f family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

func families() []family { return []family{v4, v6} }

// end is one end of a path: a namespace and its addresses there.
type end struct {
	ns    *netns.NS
	addrs map[family]netip.Addr
}

// path is a way between programs that is tried and measured.
type path struct {
	name string
	a, b end
}

// tcp measures TCP from p.a to p.b.
func (p path) tcp(f family) *tcpbench.Pair {
	return tcpbench.Between(tcpbench.End{NS: p.a.ns, Addr: p.a.addrs[f]}, tcpbench.End{NS: p.b.ns, Addr: p.b.addrs[f]})
}

// lab is what a demonstration happens in.
type lab struct {
	cluster  *node.Cluster
	realtime bool        // the process runs at real-time priority
	spaces   []*netns.NS // of the veth pair
	failed   chan struct{}
	cause    error  // why the data path ended; valid when failed is closed
	start    frames // what the nodes counted when they were up
}

// newLab brings up the nodes, and gives this process real-time priority unless
// it is to be fair.
func newLab(cfg node.ClusterConfig, fair bool) (l *lab, err error) {
	l = &lab{failed: make(chan struct{})}
	// Where it is not allowed the nodes work all the same; the report says so.
	l.realtime = !fair && sched.Realtime() == nil
	if l.cluster, err = node.StartCluster(cfg); err != nil {
		return nil, err
	}
	go func() {
		defer close(l.failed)
		if l.cause = l.cluster.Wait(); l.cause == nil {
			l.cause = errors.New("the data path has ended")
		}
	}()
	for i := range l.cluster.Nodes {
		if err := loopbackUp(l.cluster.Namespace(i)); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	l.start = settle(l)
	return l, nil
}

// sinceStart returns the frames since the nodes were up.
func (l *lab) sinceStart() frames { return framesOf(l).minus(l.start) }

// loopbackUp lets the programs in ns talk to its own addresses.
func loopbackUp(ns *netns.NS) error {
	conn, err := hostnet.Open(ns)
	if err != nil {
		return err
	}
	return errors.Join(conn.LoopbackUp(), conn.Close())
}

// context returns a context that ends with the data path.
func (l *lab) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-l.failed:
			cancel(fmt.Errorf("exn0 is gone: %w", l.cause))
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel(nil) }
}

// nodeEnd returns the i-th node, from 0.
func (l *lab) nodeEnd(i int) end {
	return end{l.cluster.Namespace(i), map[family]netip.Addr{
		v4: node.Addr4(i).Addr(),
		v6: node.Addr6(i).Addr(),
	}}
}

// exn is the path from the first node to another.
func (l *lab) exn(to int) path { return path{"exn0", l.nodeEnd(0), l.nodeEnd(to)} }

// vethName is the name of both ends of the pair, each in its namespace.
const vethName = "veth0"

// veth makes the path that exn0 is compared with: the kernel's own connection
// of two namespaces, as the kernel configures it.
func (l *lab) veth(congestion string) (path, error) {
	p := path{name: "veth"}
	var pair [2]hostnet.VethEnd
	for i, e := range []*end{&p.a, &p.b} {
		ns, err := netns.New()
		if err != nil {
			return p, err
		}
		l.spaces = append(l.spaces, ns)
		addr4 := netip.AddrFrom4([4]byte{10, 3, 0, byte(1 + i)})
		addr6 := netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 5: 3, 15: byte(1 + i)})
		*e = end{ns, map[family]netip.Addr{v4: addr4, v6: addr6}}
		pair[i] = hostnet.VethEnd{NS: ns, Name: vethName, Config: hostnet.LinkConfig{
			Addrs:             []netip.Prefix{netip.PrefixFrom(addr4, 24), netip.PrefixFrom(addr6, 64)},
			CongestionControl: congestion,
		}}
	}
	return p, hostnet.CreateVeth(pair[0], pair[1])
}

// close removes it all and waits until the data path has come to its end.
func (l *lab) close() error {
	err := l.cluster.Close()
	<-l.failed
	for _, ns := range l.spaces {
		err = errors.Join(err, ns.Close())
	}
	return err
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"exnet/internal/netns"
	"exnet/internal/sched"
	"exnet/internal/tcpbench"
	"exnet/node"
	"exnet/node/hostnet"
)

// Family is a version of IP.
type Family int

const (
	V4 Family = 4
	V6 Family = 6
)

func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

func Families() []Family { return []Family{V4, V6} }

// End is one end of a path: a namespace and the addresses in it.
type End struct {
	NS    *netns.NS
	Addrs map[Family]netip.Addr
}

// Path joins two namespaces; the demonstration tests and measures it.
type Path struct {
	Name string
	A, B End
}

// TCP measures TCP from p.a to p.b.
func (p Path) TCP(f Family) *tcpbench.Pair {
	return tcpbench.Between(tcpbench.End{NS: p.A.NS, Addr: p.A.Addrs[f]}, tcpbench.End{NS: p.B.NS, Addr: p.B.Addrs[f]})
}

// Lab is the setting of a demonstration: the nodes and the veth pair.
type Lab struct {
	Cluster  *node.Cluster // the nodes
	RealTime bool          // the process runs at real-time priority
	spaces   []*netns.NS   // of the veth pair
	failed   chan struct{}
	cause    error  // why the data path ended; valid when failed is closed
	start    Frames // what the nodes counted when they were up
}

// New brings up the nodes, and gives this process real-time priority unless
// it is to be fair.
func New(cfg node.ClusterConfig, fair bool) (l *Lab, err error) {
	l = &Lab{failed: make(chan struct{})}
	// The nodes work without it, too; the report says whether they have it.
	l.RealTime = !fair && sched.Realtime() == nil
	if l.Cluster, err = node.StartCluster(cfg); err != nil {
		return nil, err
	}
	go func() {
		defer close(l.failed)
		if l.cause = l.Cluster.Wait(); l.cause == nil {
			l.cause = errors.New("the data path has ended")
		}
	}()
	for i := range l.Cluster.Nodes {
		if err := loopbackUp(l.Cluster.Namespace(i)); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	l.start = waitFrames(l)
	return l, nil
}

// SinceStart returns the frames since the nodes were up.
func (l *Lab) SinceStart() Frames { return FramesOf(l).Minus(l.start) }

// loopbackUp lets the programs in ns talk to its own addresses.
func loopbackUp(ns *netns.NS) error {
	conn, err := hostnet.Open(ns)
	if err != nil {
		return err
	}
	return errors.Join(conn.LoopbackUp(), conn.Close())
}

// Context returns a context that ends with the data path.
func (l *Lab) Context(ctx context.Context) (context.Context, context.CancelFunc) {
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
func (l *Lab) nodeEnd(i int) End {
	return End{l.Cluster.Namespace(i), map[Family]netip.Addr{
		V4: node.Addr4(i).Addr(),
		V6: node.Addr6(i).Addr(),
	}}
}

// Exn returns the path from the first node to another.
func (l *Lab) Exn(to int) Path { return Path{"exn0", l.nodeEnd(0), l.nodeEnd(to)} }

// VethName is the name of both ends of the pair, each in its namespace.
const VethName = "veth0"

// Veth makes the path that exn0 is compared with: the kernel's own connection
// of two namespaces, as the kernel configures it.
func (l *Lab) Veth(congestion string) (Path, error) {
	p := Path{Name: "veth"}
	var pair [2]hostnet.VethEnd
	for i, e := range []*End{&p.A, &p.B} {
		ns, err := netns.New()
		if err != nil {
			return p, err
		}
		l.spaces = append(l.spaces, ns)
		addr4 := netip.AddrFrom4([4]byte{10, 3, 0, byte(1 + i)})
		addr6 := netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 5: 3, 15: byte(1 + i)})
		*e = End{ns, map[Family]netip.Addr{V4: addr4, V6: addr6}}
		pair[i] = hostnet.VethEnd{NS: ns, Name: VethName, Config: hostnet.LinkConfig{
			Addrs:             []netip.Prefix{netip.PrefixFrom(addr4, 24), netip.PrefixFrom(addr6, 64)},
			CongestionControl: congestion,
		}}
	}
	return p, hostnet.CreateVeth(pair[0], pair[1])
}

// Close removes the nodes and namespaces, and waits until the data path has ended.
func (l *Lab) Close() error {
	err := l.Cluster.Close()
	<-l.failed
	for _, ns := range l.spaces {
		err = errors.Join(err, ns.Close())
	}
	return err
}

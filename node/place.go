package node

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"exnet/arp"
	"exnet/internal/netns"
	"exnet/node/hostnet"
	"exnet/node/tun"
)

// ErrElsewhere says that the interface is in a network namespace that this process cannot enter, or
// is on its way to another one.
var ErrElsewhere = errors.New("node: the interface is in another network namespace")

// findPause is how long a node waits before it looks again for an interface that it did not find.
const findPause = 100 * time.Millisecond

// place follows the kernel's interface of a node, also to another network namespace (ip link set
// exn0 netns NAME) and back.
//
//	state      event                                 next      action
//	atHome     the watcher ends                      away      the watcher has reported all as removed
//	visiting   the watcher ends                      away      the same
//	away       found in the node's own namespace     atHome    watch it
//	away       found in another namespace            visiting  watch it
//	away       not found, entered or watched         away      look again after findPause
//	away       the device was removed or closed      over      none: the data path ends with tun.ErrGone
//	any        close                                 over      end the watcher
//
// Concurrency: one goroutine, track, makes all transitions. Events come on the watcher's, one at a
// time.
type place struct {
	node *Node
	cfg  hostnet.LinkConfig // at home
	home uint64             // inode of the node's own namespace; 0: this kernel does not say it

	stop    chan struct{} // closed by close
	tracked chan struct{} // closed when track is over; nil: it never began
	up      bool          // the interface was up at the last event; used by follow only

	mu sync.Mutex
	// state: written by move only.
	state placeState // +checklocks:mu
	// conn reaches the kernel in which the interface is; nil: away, over.
	conn *hostnet.Conn // +checklocks:mu
	// index is the interface's index there.
	index int // +checklocks:mu
	// ns is the namespace in which the interface is; nil: that of Config.NS; away, over.
	ns *netns.NS // +checklocks:mu
	// addrs are the interface's addresses.
	addrs []netip.Addr // +checklocks:mu
	// onAddrs is told the addresses that the programs of the node's own namespace can use; nil:
	// nobody asked.
	onAddrs func([]netip.Addr) // +checklocks:mu
}

// placeState is where a node's interface is.
type placeState uint8

const (
	away     placeState = iota // nobody knows, or in a namespace that cannot be entered
	atHome                     // in the node's own namespace
	visiting                   // in another namespace, which a user moved it to
	over                       // removed, or the node is closed
)

// configure configures the interface in the namespace of cfg, and follows it from there.
func (p *place) configure(n *Node, cfg Config) error {
	conn, err := hostnet.Open(cfg.NS)
	if err != nil {
		return err
	}
	index := n.Device.Index()
	p.node, p.stop = n, make(chan struct{})
	p.cfg = hostnet.LinkConfig{
		MTU:               n.Interface.MTU(),
		TxQueueLen:        hostnet.TxQueueLen,
		Addrs:             append([]netip.Prefix{n.linkLocal()}, cfg.Addrs...),
		NoAutoLinkLocal:   true,
		CongestionControl: cfg.CongestionControl,
	}
	if n.Ether != nil {
		p.cfg.MAC = new(n.Interface.MAC())
	}
	if ns, _, err := n.Device.Where(); err == nil { // else it is lost once it is moved
		p.home = ns.Inode()
		if err := ns.Close(); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	p.changeState(atHome, conn, index, nil)
	if err := conn.Configure(index, p.cfg); err != nil {
		return err
	}
	p.up = true
	watcher, err := conn.Watch(index, p.mirrorEvent)
	if err != nil {
		return err
	}
	p.tracked = make(chan struct{})
	go p.track(watcher)
	return nil
}

// changeState changes the state. It takes the connection and the namespace, and closes those of
// before.
func (p *place) changeState(to placeState, conn *hostnet.Conn, index int, ns *netns.NS) error {
	p.mu.Lock()
	oldConn, oldNS := p.conn, p.ns
	p.state, p.conn, p.index, p.ns = to, conn, index, ns
	p.mu.Unlock()
	var errs []error
	if oldConn != nil {
		errs = append(errs, oldConn.Close())
	}
	if oldNS != nil {
		errs = append(errs, oldNS.Close())
	}
	return errors.Join(errs...)
}

// track makes the transitions of the table.
func (p *place) track(watcher *hostnet.Watcher) {
	defer close(p.tracked)
	for {
		select {
		case <-p.stop:
			_ = watcher.Close() // it always succeeds
			return
		case <-watcher.Done():
		}
		_ = p.changeState(away, nil, 0, nil) // to close what only listens cannot lose anything
		for watcher = nil; watcher == nil; {
			var err error
			if watcher, err = p.findInterface(); errors.Is(err, tun.ErrGone) || errors.Is(err, tun.ErrClosed) {
				_ = p.changeState(over, nil, 0, nil)
				return
			}
			if watcher != nil {
				break
			}
			select {
			case <-p.stop:
				return
			case <-time.After(findPause):
			}
		}
	}
}

// findInterface watches the interface where it is now. tun.ErrGone, tun.ErrClosed: it is
// nowhere.
func (p *place) findInterface() (*hostnet.Watcher, error) {
	ns, name, err := p.node.Device.Where()
	if err != nil {
		return nil, err
	}
	conn, err := hostnet.Open(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	link, err := conn.Link(name)
	if err == nil {
		err = conn.Adopt(link.Index, p.cfg)
	}
	if err != nil { // it has moved on
		return nil, errors.Join(err, conn.Close(), ns.Close())
	}
	state := visiting
	if ns.Inode() == p.home {
		state = atHome
	}
	p.up = false
	err = p.changeState(state, conn, link.Index, ns)
	var watcher *hostnet.Watcher
	if err == nil {
		watcher, err = conn.Watch(link.Index, p.mirrorEvent)
	}
	if err != nil {
		return nil, errors.Join(err, p.changeState(away, nil, 0, nil))
	}
	return watcher, nil
}

// mirrorEvent mirrors the kernel's addresses and routes of the interface into the stack, and
// restores those of its own that the kernel removed. It ignores what the stack refuses: the
// stack counts the packets concerned as having no route.
func (p *place) mirrorEvent(e hostnet.Event) {
	stack := p.node.Stack // nil: the kernel knows addresses and routes
	switch e.Kind {
	case hostnet.LinkChanged:
		if e.Link.Up && !p.up {
			p.restore()
		}
		p.up = e.Link.Up
	case hostnet.IPv6On:
		p.restore()
	case hostnet.AddrAdded:
		if stack != nil {
			stack.AddAddress(e.Addr)
		}
		p.setAddrs(func(list []netip.Addr) []netip.Addr { return append(list, e.Addr.Addr()) })
	case hostnet.AddrRemoved:
		if stack != nil {
			stack.RemoveAddress(e.Addr)
		}
		p.setAddrs(func(list []netip.Addr) []netip.Addr {
			if i := slices.Index(list, e.Addr.Addr()); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
			return list
		})
	case hostnet.RouteAdded:
		if stack != nil {
			stack.AddRoute(e.Route.Dst, e.Route.Gateway)
		}
	case hostnet.RouteRemoved:
		if stack != nil {
			stack.RemoveRoute(e.Route.Dst, e.Route.Gateway)
		}
	}
}

// restore gives the interface back what the kernel took: at home all its own addresses, elsewhere
// the link-local one, as for any interface that is moved. If the interface went down again, or
// moved, there is nothing to restore.
func (p *place) restore() {
	p.mu.Lock()
	conn, index, cfg := p.conn, p.index, p.cfg
	if p.state != atHome {
		cfg.Addrs = []netip.Prefix{p.node.linkLocal()}
	}
	p.mu.Unlock()
	if conn != nil {
		_ = conn.Restore(index, cfg)
	}
}

// setAddrs changes the list of the interface's addresses, and tells it.
func (p *place) setAddrs(change func([]netip.Addr) []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = change(p.addrs)
	p.tellLocked()
}

// +checklocks:p.mu
func (p *place) tellLocked() {
	if p.onAddrs == nil {
		return
	}
	if p.state == visiting { // programs at home cannot use them
		p.onAddrs(nil)
	} else {
		p.onAddrs(slices.Clone(p.addrs))
	}
}

// close ends the following. The interface stays.
func (p *place) close() error {
	if p.tracked != nil {
		close(p.stop)
		<-p.tracked
	}
	return p.changeState(over, nil, 0, nil)
}

// OnAddrs calls f with the interface's addresses, now and whenever they change: those that programs
// in the node's own network namespace can use. f must not call methods of the Node.
func (n *Node) OnAddrs(f func([]netip.Addr)) {
	n.place.mu.Lock()
	defer n.place.mu.Unlock()
	n.place.onAddrs = f
	n.place.tellLocked()
}

// Kernel calls f with a connection to the kernel of the network namespace in which the interface is
// now, and the interface's index there; visiting says that it is not the node's own, and is its
// path then. The error is that of f, or ErrElsewhere.
func (n *Node) Kernel(f func(conn *hostnet.Conn, index int, visiting string) error) error {
	n.place.mu.Lock()
	defer n.place.mu.Unlock()
	p := &n.place
	if p.conn == nil {
		return ErrElsewhere
	}
	path := ""
	if p.state == visiting {
		path = p.ns.Path()
	}
	return f(p.conn, p.index, path)
}

// linkLocal is the link-local address of the interface's MAC on the fabric.
func (n *Node) linkLocal() netip.Prefix {
	return netip.PrefixFrom(arp.MAC(n.Interface.MAC()).LinkLocal(), linkLocalBits)
}

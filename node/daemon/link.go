package daemon

import (
	"fmt"
	"net"
	"sync"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link"
	"exnet/fabric/link/shm"
	"exnet/fabric/link/wire"
	"exnet/internal/counter"
	"exnet/node"
)

// linkWire, in a node's description, asks for links that may lose packets.
const linkWire = "wire"

// linkPeer joins the NIC with a peer's: through shared memory, or over a medium that may lose
// packets if one of the two nodes asks for that.
func (d *Daemon) linkPeer(conn *net.UnixConn, peer fabric.NodeID) (l emp.Link, err error) {
	if d.cfg.Faults != nil || asksForWire(d.member, peer) {
		l, err = d.overSocket(conn, peer)
	} else {
		l, err = d.overShm(conn)
	}
	if err != nil {
		return nil, err
	}
	d.groups.announceAll()
	d.sockets.keepPeerConnected(peer, l)
	d.carrier.followLink(peer, l, false)
	return l, nil
}

// asksForWire reports whether a peer of a home asks for a link that may lose packets.
func asksForWire(home emp.Home, peer fabric.NodeID) bool {
	for _, p := range home.Peers() {
		if p.Node == peer {
			return p.Description.Link == linkWire
		}
	}
	return false
}

// cardForLinks returns the NIC as links see it.
func (d *Daemon) cardForLinks() link.NIC {
	if d.crossbars != nil {
		return routed{d.nic, d.crossbars}
	}
	return d.nic
}

func (d *Daemon) overShm(conn *net.UnixConn) (emp.Link, error) {
	l, err := shm.Connect(d.cardForLinks(), conn, shm.Config{Driver: d.loop})
	if err != nil {
		return nil, err // not a *shm.Link that is nil
	}
	return l, nil
}

// faultsTo are those that packets to a peer meet.
func (d *Daemon) faultsTo(peer fabric.NodeID) (f wire.Faults) {
	if d.cfg.Faults != nil {
		f = d.cfg.Faults.Between(d.nic.ID(), peer)
	}
	return f
}

// overSocket makes the link to a peer of this host that may lose packets.
func (d *Daemon) overSocket(conn *net.UnixConn, peer fabric.NodeID) (emp.Link, error) {
	m, err := wire.Over(conn, d.faultsTo(peer))
	if err != nil {
		return nil, err
	}
	return d.overWire(m, peer, wire.Config{})
}

// overConn makes the link to a peer of another host that may lose packets.
func (d *Daemon) overConn(conn net.Conn, peer fabric.NodeID) (emp.Link, error) {
	m, err := wire.OverStream(conn, d.faultsTo(peer))
	if err != nil {
		return nil, err
	}
	return d.overWire(m, peer, wire.Config{DownAfter: hostDown})
}

func (d *Daemon) overWire(m wire.Medium, peer fabric.NodeID, cfg wire.Config) (emp.Link, error) {
	l, err := wire.Connect(d.cardForLinks(), peer, m, cfg)
	if err != nil {
		return nil, err
	}
	d.wires.add(l)
	return l, nil
}

// wires are the links that may lose packets. Their counters outlive them, to show that a
// link was down.
//
// Concurrency: all methods may be called from many goroutines.
type wires struct {
	mu sync.Mutex
	// links: the last one to each peer.
	links map[fabric.NodeID]*wire.Link // +checklocks:mu
	// past: of those before.
	past map[fabric.NodeID]wire.Stats // +checklocks:mu
}

// add notes a link to a peer, that before it has ended.
func (w *wires) add(l *wire.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.links == nil {
		w.links, w.past = make(map[fabric.NodeID]*wire.Link), make(map[fabric.NodeID]wire.Stats)
	}
	if last := w.links[l.Peer()]; last != nil {
		w.past[l.Peer()] = w.past[l.Peer()].Plus(last.Stats())
	}
	w.links[l.Peer()] = l
}

// stats returns the counters of all links to a peer; false: there was none.
func (w *wires) stats(peer fabric.NodeID) (wire.Stats, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.links[peer]
	if l == nil {
		return wire.Stats{}, false
	}
	return w.past[peer].Plus(l.Stats()), true
}

// addSockets adds the counters of the node's own sockets, and of its broker.
func (d *Daemon) addSockets(c *counter.List) {
	var r refusalStats
	counter.Load(&d.refused, &r)
	c.Add("refused.", counter.All(r))
	for _, o := range d.services {
		s := o.about()
		*c = append(*c, counter.Value{Name: "refused." + s.what, Value: s.refused.Load()})
	}
	if b := d.sockets.broker(); b != nil {
		c.Add("broker.", b.Stats().All())
	}
}

// addLinks adds the counters of the links to the peers.
func (d *Daemon) addLinks(c *counter.List) {
	for _, p := range d.knownPeers() {
		if l, ok := p.Link.(*shm.Link); ok {
			c.Add(fmt.Sprintf("shm.node%d.", p.Node), counter.All(l.Stats()))
		}
		if s, ok := d.wires.stats(p.Node); ok {
			node.AddWire(c, p.Node, s)
		}
	}
}

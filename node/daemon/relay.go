package daemon

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/relay"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/link/ofi"
	"exnet/fabric/link/stream"
	"exnet/internal/counter"
	"exnet/node/control"
)

// Times between two looks whether a peer carries direct sockets: one whose link has just
// come up does soon, one of another version never.
const (
	meetRetry    = 10 * time.Millisecond
	meetMaxRetry = time.Second
)

// carrier carries direct sockets to programs behind other nodes through the fabric, and the
// words of brokers to those of other hosts.
//
// Concurrency: all methods may be called from many goroutines; run once.
type carrier struct {
	engine  *relay.Engine
	sockets *sockets

	mu sync.Mutex
	// met: the nodes of other hosts that carry, and the links to them.
	met    map[fabric.NodeID]emp.Link // +checklocks:mu
	closed bool                       // +checklocks:mu
	ended  chan struct{}              // is closed with it
	links  sync.WaitGroup
}

// openCarrier makes it, and has it be the carrier of the broker.
func (d *Daemon) openCarrier() (err error) {
	c := &carrier{sockets: d.sockets, met: make(map[fabric.NodeID]emp.Link), ended: make(chan struct{})}
	c.engine, err = relay.New(relay.Config{NIC: d.nic, Driver: d.loop, Offered: c.takeOffer, Note: c.passToBroker, Answer: d.handToHost, Patience: d.tcpPatience, Log: d.cfg.Log})
	if err != nil {
		return err
	}
	d.carrier, d.sockets.carrier = c, c
	d.sockets.cfg.Carrier = c.engine
	if len(d.cfg.Direct) > 0 {
		d.sockets.cfg.Carried = d.cfg.Direct.Cover
	}
	d.node.Interface.SetGate(func(packet []byte) func(func()) bool {
		g, reset := c.engine.Gate(packet)
		if g == nil {
			return nil
		}
		return func(send func()) bool { return c.engine.Hold(g, reset, send) }
	})
	d.node.Interface.SetFilter(c.engine.Admits)
	d.node.Watch(c.engine.Probe)
	return nil
}

// tcpSumOff is where a TCP header has its checksum (RFC 9293, 3.1).
const tcpSumOff = 16

// handToHost hands the host a packet of the Engine, which stands in for the far kernel.
func (d *Daemon) handToHost(from fabric.NodeID, packet []byte, tcp int) {
	off := exteth.Offload{Flags: exteth.OffloadNeedsChecksum, CsumStart: uint16(tcp), CsumOffset: tcpSumOff}
	_ = d.node.Interface.Deliver(from, off, packet) // counted; TCP probes again
}

// takeOffer has the broker offer a connection to a program here.
func (c *carrier) takeOffer(o relay.Offer) {
	if b := c.sockets.broker(); b != nil {
		b.Receive(o.Node, o.ID, o.Info.Nonce, wire.Key{Client: o.Info.Client, Server: o.Info.Server}, o.Segment, o.Bell)
		return
	}
	_ = unix.Close(o.Segment)
	_ = unix.Close(o.Bell)
}

// passToBroker tells the broker what that of another host says.
func (c *carrier) passToBroker(from fabric.NodeID, b []byte) {
	if s := c.sockets.broker(); s != nil {
		if err := s.Hear(from, b); err != nil {
			c.sockets.logPeerEnd(err)
		}
	}
}

// carryConnections has the connections carried until ctx ends.
func (c *carrier) carryConnections(ctx context.Context) error {
	defer c.waitLinks()
	return c.engine.Run(ctx)
}

// backTime is how long a node that ends waits for its programs to go back to TCP, which takes
// milliseconds unless the machine is very busy, or a program is stopped in a send.
const backTime = 10 * time.Second

// goBack has the programs go back to TCP: their connections outlive the node.
func (c *carrier) goBack() {
	ctx, cancel := context.WithTimeout(context.Background(), backTime)
	defer cancel()
	c.engine.GoBack(ctx)
}

func (c *carrier) waitLinks() {
	c.mu.Lock()
	c.closed = true
	close(c.ended)
	c.mu.Unlock()
	c.links.Wait()
}

// followLink follows a link to its end, after which what goes through it waits for the next one.
// remote: the peer is on another host, whose broker is met by it.
func (c *carrier) followLink(peer fabric.NodeID, l emp.Link, remote bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.links.Go(func() {
		if remote && c.awaitPeer(peer, l) {
			c.engine.PeerUp(peer)
			c.beginSession(peer, l)
		}
		select {
		case <-l.Done():
		case <-c.ended:
			return
		}
		c.endSession(peer, l)
		c.engine.PeerDown(peer)
	})
}

// nodeLeft follows a node that has left the fabric: what went through it has ended, also where its
// Engine's farewell was lost with the link.
func (c *carrier) nodeLeft(peer fabric.NodeID) { c.engine.PeerLeft(peer) }

// awaitPeer waits until the peer carries; false: the link or the node has ended.
func (c *carrier) awaitPeer(peer fabric.NodeID, l emp.Link) bool {
	for wait := meetRetry; !c.engine.Reaches(peer); wait = min(2*wait, meetMaxRetry) {
		select {
		case <-time.After(wait):
		case <-l.Done():
			return false
		case <-c.ended:
			return false
		}
	}
	return true
}

// beginSession begins a session with the broker of a peer.
func (c *carrier) beginSession(peer fabric.NodeID, l emp.Link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met[peer] = l
	if b := c.sockets.broker(); b != nil {
		_ = b.Meet(peer, byHardware(l)) // the Engine may have ended
	}
}

// byHardware reports whether RDMA hardware is a link between hosts: direct sockets go by it then.
func byHardware(l emp.Link) bool {
	s, ok := l.(*stream.Link)
	return ok && ofi.Hardware(s.Name())
}

// endSession ends the session by a link, unless there is one by the next link.
func (c *carrier) endSession(peer fabric.NodeID, l emp.Link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.met[peer] != l {
		return
	}
	delete(c.met, peer)
	if b := c.sockets.broker(); b != nil {
		b.Part(peer)
	}
}

// meetAll has a new broker meet those of the peers.
func (c *carrier) meetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.sockets.broker(); b != nil {
		for peer, l := range c.met {
			_ = b.Meet(peer, byHardware(l)) // the Engine may have ended
		}
	}
}

// goneBack shows as demoted the connections that the fabric does not carry any more: their programs
// say so when they make a call.
func goneBack(all []connstats.Connection, carried []relay.Connection) {
	ends := func(local, remote netip.AddrPort) [2]netip.AddrPort {
		for _, a := range []*netip.AddrPort{&local, &remote} {
			*a = netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
		}
		return [2]netip.AddrPort{local, remote}
	}
	stays := make(map[[2]netip.AddrPort]bool)
	for _, r := range carried {
		stays[ends(r.Local, r.Remote)] = !r.Back
	}
	for i := range all {
		if c := &all[i]; c.Path == connstats.PathFabric.String() && !stays[ends(c.Local, c.Remote)] {
			c.Demoted(connstats.WhyPeer)
		}
	}
}

// relayedOf returns the connections that the node carries, as status shows them.
func relayedOf(list []relay.Connection) (all []control.Relayed) {
	for _, r := range list {
		all = append(all, control.Relayed{Local: r.Local, Remote: r.Remote, Node: int(r.Node), State: r.State, Gate: r.Gate, Held: r.Held,
			Waits: r.Waits, HeldDropped: r.HeldDropped, EarlyDropped: r.EarlyDropped})
	}
	return all
}

// addCarrier adds the counters of direct sockets that go through the fabric.
func (d *Daemon) addCarrier(c *counter.List) {
	c.Add("relay.", d.carrier.engine.Stats().All())
}

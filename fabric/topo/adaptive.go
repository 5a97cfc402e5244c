package topo

import (
	"exnet/fabric"
)

// adaptiveBatch is how many packets take the same way: a crossbar that decides anew for each
// packet does not spread them more evenly, and costs the emulation more.
const adaptiveBatch = 8

// adaptiveWindow is after how many packets that are routed adaptively the load is counted anew:
// what 2 MB take.
const adaptiveWindow = 4096

// Adaptive reports whether packets can be routed adaptively (section 3.1): the topology is a torus
// or a mesh with all its links. There the escape channels cannot deadlock; see Escape.
func (r *Routes) Adaptive() bool { return r.topo.kind != KindFree && r.down == nil }

// Closer appends the ports that lead from one node of a torus or mesh on a shortest path to
// another one, in ascending order: none if they are the same.
func (r *Routes) Closer(ports []Port, from, to fabric.NodeID) []Port {
	return r.closerPorts(ports, r.topo.positionOf(from), r.topo.positionOf(to))
}

func (r *Routes) closerPorts(ports []Port, at, to int32) []Port {
	d := r.topo.dims
	own, there := d.coordsOf(int(at)), d.coordsOf(int(to))
	for dim, size := range d {
		p := r.portTowards(dim, own[dim], there[dim])
		if p == PortHost {
			continue
		}
		if ahead := (there[dim] - own[dim] + size) % size; r.topo.kind == KindTorus && size > 2 && 2*ahead == size {
			ports = append(ports, Port(2*dim), Port(2*dim)+1) // as far either way
			continue
		}
		ports = append(ports, p)
	}
	return ports
}

// CarryAdaptive counts packets from a to b on links of shortest paths: each crossbar on the way
// sends a few of them out of the port whose link has carried the fewest bytes of late. It reports
// whether there is a path. Where Adaptive is false the packets follow the tables, as in CarryOf,
// and so do those of a class with an override. It does not allocate.
func (r *Routes) CarryAdaptive(l *Load, a, b fabric.NodeID, class fabric.Class, packets, bytes uint64) bool {
	at, to := r.topo.positionOf(a), r.topo.positionOf(b)
	if _, reserved := r.overrideFor(a, b, class); reserved || !r.Adaptive() || at < 0 || to < 0 {
		return r.CarryOf(l, a, b, class, packets, bytes)
	}
	l.beginWindow(packets, false)
	for packets > 0 {
		n := min(packets, adaptiveBatch)
		share := bytes * n / packets
		r.carryStray(l, at, to, n, share)
		packets, bytes = packets-n, bytes-share
	}
	return true
}

// carryStray carries packets that all take the same path.
func (r *Routes) carryStray(l *Load, at, to int32, packets, bytes uint64) {
	var room [Ports]Port
	for at != to {
		var best *channel
		var next hop
		least := uint64(0)
		for _, p := range r.closerPorts(room[:0], at, to) {
			h := r.topo.hopAt(at, p)
			if n := l.channels[h.channel].recentBytes(); best == nil || n < least {
				best, next, least = &l.channels[h.channel], h, n
			}
		}
		best.add(packets, bytes)
		at = next.node
	}
}

// Escape returns the port and the virtual channel by which a packet that finds no free adaptive
// channel leaves a node of a torus or mesh towards another one: dimension order, and in a ring
// channel 1 until the packet has crossed the link from the last node to the first (or back), then
// 0 (Dally and Seitz, 1987). A packet may take it at any node and return to adaptive channels at
// the next: these escapes, with all dependencies that adaptive hops between them add, form no cycle
// (Duato, 1993), which a test of package fabric/routing shows. Two channels are for escape, one at
// least for adaptive packets. The emulation computes them, and no packet waits.
func (r *Routes) Escape(from, to fabric.NodeID) (p Port, virtual uint8) {
	at, end := r.topo.positionOf(from), r.topo.positionOf(to)
	d := r.topo.dims
	own, there := d.coordsOf(int(at)), d.coordsOf(int(end))
	for dim := range d {
		if p = r.portTowards(dim, own[dim], there[dim]); p == PortHost {
			continue
		}
		up := p == Port(2*dim)
		if r.topo.kind == KindTorus && d[dim] > 2 && up != (there[dim] > own[dim]) {
			virtual = 1
		}
		return p, virtual
	}
	return PortHost, 0
}

package crossbar

import (
	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/profile"
	"exnet/fabric/rma"
	"exnet/fabric/topo"
	"exnet/fabric/velo"
	"exnet/foreign"
)

// descriptor is the network descriptor of a packet in bytes (thesis 3.2.1.2).
const descriptor = 512 - rma.MTU

// packets returns how many RMA packets n bytes take, and their total length in bytes.
func packets(n int) (count, bytes int) {
	count = (n + rma.MTU - 1) / rma.MTU
	return count, n + count*descriptor
}

// Wire returns the packets and bytes that a flow of a profile puts on each link of its route.
func Wire(f profile.Flow) topo.Counts {
	if f.Unit == profile.VELO {
		n := f.Messages()
		return topo.Counts{Packets: n, Bytes: f.Bytes() + n*descriptor}
	}
	sum := topo.Counts{Packets: f.Empty, Bytes: f.Empty * descriptor}
	for _, s := range f.Sizes {
		n, bytes := packets(int(s.Size))
		sum.Packets += uint64(n) * s.Count
		sum.Bytes += uint64(bytes) * s.Count
	}
	return sum
}

// WireMulticast returns what the multicasts of a profile put on each link of their tree.
func WireMulticast(m profile.Multicast) topo.Counts {
	return Wire(profile.Flow{Unit: profile.VELO, Sizes: m.Sizes})
}

var (
	_ link.Port    = (*port)(nil)
	_ link.Classed = (*flow)(nil)
	_ link.Remote  = (*remote)(nil)
	_ link.Placer  = (*sink)(nil)
)

// Port returns a port that leads from one node to another as p does, and counts on
// each link between them.
func (x *Crossbars) Port(from, to fabric.NodeID, p link.Port) link.Port {
	return &port{x, from, to, p}
}

type port struct {
	x        *Crossbars
	from, to fabric.NodeID
	next     link.Port
}

// OpenFlow implements link.Port.
func (p *port) OpenFlow(from, to fabric.VPID, c link.Credit) (link.Flow, error) {
	f, err := p.next.OpenFlow(from, to, c)
	if err != nil {
		return nil, err
	}
	counted := flow{f, p}
	if r, ok := f.(link.Remote); ok {
		return &remote{counted, r}, nil
	}
	return &counted, nil
}

// Get implements link.Port.
func (p *port) Get(g link.Get, s link.Sink) {
	p.x.countPackets(p.from, p.to, g.Class, 1, descriptor)
	k, ok := p.x.sinks.Get().(*sink)
	if !ok {
		k = new(sink)
	}
	k.port, k.next, k.got, k.class = p, s, 0, g.Class
	p.next.Get(g, k)
}

// Put implements link.Port.
func (p *port) Put(r link.Put, data []byte, d link.Done) {
	n, bytes := packets(len(data))
	p.x.carryData(p.from, p.to, r.Class, n, bytes)
	p.next.Put(r, data, d)
}

// flow counts the messages of a flow.
type flow struct {
	link.Flow
	port *port
}

// Commit implements link.Flow. Replicas of a multicast are counted on their tree; an
// abandoned slot is never sent.
func (f *flow) Commit(pos, status uint64) { f.CommitClass(pos, status, 0) }

// CommitClass implements link.Classed.
func (f *flow) CommitClass(pos, status uint64, c fabric.Class) {
	if n := velo.WordLen(status); n > 0 && !velo.WordMulticast(status) {
		f.port.x.countPackets(f.port.from, f.port.to, c, 1, n+descriptor)
	}
	f.Flow.Commit(pos, status)
}

// remote is a flow whose source asks the target for credit.
type remote struct {
	flow
	credit link.Remote
}

// Consumed implements link.Remote.
func (r *remote) Consumed() uint64 { return r.credit.Consumed() }

// Watch implements link.Remote.
func (r *remote) Watch(total uint64) { r.credit.Watch(total) }

// sink counts the response of a GET: its data, or the refusal.
type sink struct {
	port  *port
	next  link.Sink
	got   int
	class fabric.Class // of the request
}

// Data implements link.Sink.
func (k *sink) Data(off int, b foreign.Memory) error {
	k.got += b.Len()
	return k.next.Data(off, b)
}

// Place implements link.Placer.
func (k *sink) Place() []byte {
	if p, ok := k.next.(link.Placer); ok {
		return p.Place()
	}
	return nil
}

// Placed implements link.Placer. It follows a Place that was not nil.
func (k *sink) Placed(n int) {
	k.got += n
	k.next.(link.Placer).Placed(n)
}

// Done implements link.Sink.
func (k *sink) Done(s fabric.Status) {
	p, next := k.port, k.next
	n, bytes := packets(k.got)
	if n == 0 {
		n, bytes = 1, descriptor
	}
	p.x.carryData(p.to, p.from, k.class, n, bytes)
	k.port, k.next = nil, nil
	p.x.sinks.Put(k)
	next.Done(s)
}

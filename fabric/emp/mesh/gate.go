package mesh

import (
	"maps"
	"net/netip"
	"time"

	"exnet/fabric"
	"exnet/fabric/identity"
)

// Bounds on callers that are not authenticated yet.
const (
	// maxHalfOpen is how many there are at a time, and maxPerSource how many of them
	// from one address, or one IPv6 network of 64 bits.
	maxHalfOpen  = 128
	maxPerSource = 16
	// penance is how long a refused caller's place stays taken.
	penance = time.Second
	// greetTime bounds the handshake and the hellos.
	greetTime = 5 * time.Second
	// A member gets burst places back at once, and refill more in each second. Beyond that its
	// places stay taken like those of strangers: a handshake costs this node more than the other
	// side.
	burst  = 64
	refill = 8
	// maxAllowances is how many members' allowances are kept before the full ones are removed.
	maxAllowances = 1024
)

// gate lets in a bounded number of strangers, and paces members. It has no clock and no lock.
type gate struct {
	total   int
	sources map[netip.Prefix]int
	held    []hold // in the order of time
	// members are the allowances of those that have come lately, by the node of their certificate.
	members map[fabric.NodeID]allowance
}

// allowance is how many places of a member are free at once.
type allowance struct {
	left float64
	at   time.Time
}

func (a allowance) allowanceAt(now time.Time) float64 {
	return min(burst, a.left+refill*max(0, now.Sub(a.at).Seconds()))
}

// caller is whoever has a place: a stranger, a caller that is believed without a certificate
// (--plaintext), or the member that the certificate names.
type caller struct {
	believed, certified bool
	node                fabric.NodeID
}

func callerOf(p *identity.Peer) caller {
	if p == nil {
		return caller{believed: true}
	}
	return caller{believed: true, certified: true, node: p.Node}
}

// hold is a place that is taken for a while.
type hold struct {
	until  time.Time
	source netip.Prefix
}

// sourceOf returns what counts as one source.
func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the zero Prefix for an invalid address
	return p
}

// takePlace takes a place; false: there is none.
func (g *gate) takePlace(now time.Time, from netip.Addr) bool {
	for len(g.held) > 0 && !now.Before(g.held[0].until) {
		g.releasePrefix(g.held[0].source)
		g.held = g.held[1:]
	}
	p := sourceOf(from)
	if g.total >= maxHalfOpen || g.sources[p] >= maxPerSource {
		return false
	}
	if g.sources == nil {
		g.sources = make(map[netip.Prefix]int)
	}
	g.total++
	g.sources[p]++
	return true
}

// giveBack gives a place back: at once if the caller is believed and has not come too often.
func (g *gate) giveBack(now time.Time, from netip.Addr, who caller) {
	if who.believed && (!who.certified || g.takeAllowance(now, who.node)) {
		g.releasePrefix(sourceOf(from))
		return
	}
	g.held = append(g.held, hold{now.Add(penance), sourceOf(from)})
}

// takeAllowance takes one of a member's allowance; false: there is none.
func (g *gate) takeAllowance(now time.Time, n fabric.NodeID) bool {
	a, known := g.members[n]
	if !known {
		if len(g.members) >= maxAllowances {
			maps.DeleteFunc(g.members, func(_ fabric.NodeID, a allowance) bool { return a.allowanceAt(now) >= burst })
		}
		if g.members == nil {
			g.members = make(map[fabric.NodeID]allowance)
		}
		a.left = burst
	}
	left := a.allowanceAt(now)
	ok := left >= 1
	if ok {
		left--
	}
	g.members[n] = allowance{left, now}
	return ok
}

func (g *gate) releasePrefix(p netip.Prefix) {
	g.total--
	if g.sources[p]--; g.sources[p] == 0 {
		delete(g.sources, p)
	}
}

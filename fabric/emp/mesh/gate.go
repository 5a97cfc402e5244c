package mesh

import (
	"net/netip"
	"time"
)

// Bounds on those who have connected and have not shown yet who they are.
const (
	// maxHalfOpen is how many there are at a time, and maxPerSource how many of them
	// from one address, or one IPv6 network of 64 bits.
	maxHalfOpen  = 128
	maxPerSource = 16
	// penance is how long the place of one that was refused stays taken.
	penance = time.Second
	// greetTime bounds the handshake and the hellos.
	greetTime = 5 * time.Second
)

// gate lets in a bounded number of strangers. It has no clock and no lock.
type gate struct {
	total   int
	sources map[netip.Prefix]int
	held    []hold // in the order of time
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

// enter takes a place; false: there is none.
func (g *gate) enter(now time.Time, from netip.Addr) bool {
	for len(g.held) > 0 && !now.Before(g.held[0].until) {
		g.release(g.held[0].source)
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

// leave gives a place back: at once if who had it is believed.
func (g *gate) leave(now time.Time, from netip.Addr, believed bool) {
	if believed {
		g.release(sourceOf(from))
		return
	}
	g.held = append(g.held, hold{now.Add(penance), sourceOf(from)})
}

func (g *gate) release(p netip.Prefix) {
	g.total--
	if g.sources[p]--; g.sources[p] == 0 {
		delete(g.sources, p)
	}
}

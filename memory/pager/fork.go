package pager

import (
	"crypto/rand"
	"encoding/binary"

	"exnet/memory/pager/uffd"
)

// forkProcess takes a child over: what its parent has is its own, too, as far as the kernel
// promises.
func (g *Pager) forkProcess(p *process, child uffd.FD) {
	promised := p.askPromises()
	p.forks++
	c := &process{
		account: p.account,
		parent:  p, uffd: child, agent: -1, hello: p.hello, adopted: true, child: true,
		spans: p.spans.clone(), pages: newTable(), ring: newRing(g.standby), streams: g.newStreams(), token: newToken(),
	}
	for _, s := range promised.none.spans {
		c.spans.remove(s.Start, s.End)
	}
	untold := p.spans.clone()
	for _, s := range promised.known.spans {
		untold.remove(s.Start, s.End)
	}
	if p.isChanging() || len(p.late) > 0 {
		c.unsettled, p.hasUnsettled = p, true
		c.promised, c.untold, untold = promised, untold, spanSet{}
	}
	// What is in the parent's slots has to be in the store: the child has no slots of it.
	lost := !g.cleanSlots(p, p.ring.tail, p.ring.used)
	for at, from := range p.pages.chunks {
		to := new(chunk)
		for i := range from {
			number := at*chunkPages + uint64(i)
			if from[i].state == untouched || !promised.givesPage(number) {
				continue
			}
			if from[i].state != resident && untold.has(number*pageSize) { // the parent has ended: nobody tells
				to[i], lost = nowhere, true
				continue
			}
			to[i] = g.inheritPage(from[i])
		}
		c.pages.chunks[at] = to
	}
	if lost {
		g.sayOnce("fork", "process %d has forked, and memory of the child is lost: whoever touches it gets SIGBUS", p.pid)
	}
	g.countProcess(c)
	// It may have forked when no more than the mark was registered.
	_ = c.uffd.Register(c.hello.slots, c.hello.end-c.hello.slots)
	_, _ = c.uffd.Copy(c.hello.markAddress(), c.markPage(), false) // or when it looks
	if g.watchDescriptor(int(child), source{kind: ofUffd, p: c}) != nil {
		g.dropProcess(c)
	}
}

// nowhere is a page that is lost.
var nowhere = page{state: remote, flags: inherited}

// inheritPage returns what the child has of a parent's page.
func (g *Pager) inheritPage(from page) page {
	to := page{place: from.place, state: from.state, flags: from.flags&dirty | inherited}
	switch {
	case from.state == standby && from.flags&dirty != 0: // it could not be written
		return nowhere
	case from.state == standby && from.place == 0: // zeros
		return page{}
	case from.state == standby:
		to.state = remote
	}
	if to.place != 0 && !g.places.addUser(to.place) {
		to.place = g.copyPlace(to.place)
		if to.place == 0 {
			to.state = remote
		}
	}
	return to
}

// copyPlace copies what is at a place to another. It returns 0 if that is not possible.
func (g *Pager) copyPlace(from uint32) uint32 {
	to, n := g.places.takeRow(1)
	if n == 0 {
		g.killAll()
		return 0
	}
	buf := make([]byte, pageSize)
	if g.readStore(buf, from) != nil {
		return 0
	}
	if _, err := g.store.WriteAt(buf, placeOffset(to)); err != nil {
		return 0
	}
	return to
}

// newToken returns a number that is not 0.
func newToken() uint64 {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // it does not fail
	return binary.NativeEndian.Uint64(raw[:]) | 1
}

package pager

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	smallestArea = 64 << 10 // of memory that is paged
	smallestRSS  = 64       // pages of a process that is paged
	perTick      = 1000     // pages that a program may fill in a millisecond
	rescanTicks  = 20
	tickTime     = time.Millisecond
	steadyTime   = 5 * time.Millisecond
	idleTime     = 50 * time.Millisecond
)

// timeout is how long to wait for the next event, in milliseconds.
func (g *Pager) timeout() int {
	for p := range g.processes {
		if p.more && p.busy != opMove {
			return 0
		}
	}
	for p := range g.processes {
		if (len(p.retry) > 0 || p.unread) && p.busy == 0 {
			return 1 // what changes its memory is about to be told
		}
	}
	return max(int((time.Until(g.nextTick)+time.Millisecond-1)/time.Millisecond), 0)
}

// tick looks how large the processes are, and has those paged that are to be. It accepts again.
func (g *Pager) tick(now time.Time) {
	if _, ok := g.sources[g.listener]; !ok && g.watch(g.listener, source{kind: ofListener}) != nil {
		delete(g.sources, g.listener)
	}
	all, grows := 0, false
	for p := range g.processes {
		if p.agent < 0 {
			if p.gone() {
				g.drop(p)
			}
			continue
		}
		g.endFiltered(p)
		p.readRSS()
		all += max(p.rss, p.held())
		unknown := p.rss - p.held() // it grows by memory that is new, not by pages that come
		grows = grows || unknown > p.unknown+16
		p.unknown = unknown
	}
	g.counts.Here, g.counts.Most = uint64(all), max(g.counts.Most, uint64(all))
	left := g.limit/2 - all
	for p := range g.processes {
		if p.agent < 0 {
			continue
		}
		if p.adopted {
			p.rescan--
			p.barren = false
			g.unpark(p)
			if grows || p.rescan <= 0 {
				g.scan(p)
			}
		} else if left <= 0 && p.rss >= smallestRSS {
			g.adopt(p)
		}
	}
	wait := idleTime
	switch {
	case grows:
		wait = tickTime
	case left <= 0:
		wait = steadyTime
	}
	if left > 0 {
		wait = min(wait, max(time.Duration(left/perTick)*time.Millisecond, time.Millisecond))
	}
	g.lookTraced(now)
	g.nextTick = now.Add(min(wait, g.nextTraced.Sub(now)))
	g.follow.look(now)
}

// gone says whether a process's memory is there no more.
func (p *process) gone() bool {
	return errors.Is(p.uffd.WriteProtect(p.hello.mark(), pageSize, false), unix.ESRCH)
}

// adopt begins to page a process.
func (g *Pager) adopt(p *process) {
	h := p.hello
	slots := h.end - h.slots
	err := errors.Join(p.uffd.Register(h.mark(), pageSize), p.uffd.Register(h.slots, slots))
	if slots != maxSlots*pageSize {
		err = errors.Join(err, errWire)
	}
	if err != nil {
		if !p.gone() {
			g.say("adopt", "process %d is not paged: %v", p.pid, err)
		}
		g.drop(p)
		return
	}
	p.adopted = true
	g.scan(p)
}

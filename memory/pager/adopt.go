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

// nextTimeout is how long to wait for the next event, in milliseconds.
func (g *Pager) nextTimeout() int {
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

// lookAtProcesses reads how large the processes are, pages those that are to be paged, and
// accepts connections again.
func (g *Pager) lookAtProcesses(now time.Time) {
	if _, ok := g.sources[g.listener]; !ok && g.watchDescriptor(g.listener, source{kind: ofListener}) != nil {
		delete(g.sources, g.listener)
	}
	all, grows := 0, false
	for p := range g.processes {
		if p.agent < 0 {
			if p.memoryGone() {
				g.dropProcess(p)
			}
			continue
		}
		g.endFiltered(p)
		p.readRSS()
		all += max(p.rss, p.heldPages())
		unknown := p.rss - p.heldPages() // it grows by memory that is new, not by pages that come
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
			g.unparkPages(p)
			if grows || p.rescan <= 0 {
				g.scanAreas(p)
			}
		} else if left <= 0 && p.rss >= smallestRSS {
			g.adoptProcess(p)
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
	g.follow.chooseCPU(now)
}

// memoryGone says whether a process's memory is there no more.
func (p *process) memoryGone() bool {
	return errors.Is(p.uffd.WriteProtect(p.hello.markAddress(), pageSize, false), unix.ESRCH)
}

// adoptProcess begins to page a process.
func (g *Pager) adoptProcess(p *process) {
	h := p.hello
	slots := h.end - h.slots
	err := errors.Join(p.uffd.Register(h.markAddress(), pageSize), p.uffd.Register(h.slots, slots))
	if slots != maxSlots*pageSize {
		err = errors.Join(err, errWire)
	}
	if err != nil {
		if !p.memoryGone() {
			g.sayOnce("adopt", "process %d is not paged: %v", p.pid, err)
		}
		g.dropProcess(p)
		return
	}
	p.adopted = true
	g.scanAreas(p)
}

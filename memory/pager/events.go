package pager

import (
	"errors"
	"slices"

	"exnet/memory/pager/uffd"

	"golang.org/x/sys/unix"
)

// mostMessages is how many messages of a process are read before others have their turn: threads
// that miss pages all the time would keep the pager from all else, also from what they have
// beyond the share.
const mostMessages = 256

// readMessages reads what a process's userfaultfd reports. None is read while its agent moves
// pages: until a change of its memory has been read, the kernel refuses to move any. For the
// same reason no message is read before the last one is handled: of a fault and a fork that were
// read at once, the page would come to the parent, and the child be taken to have it, too.
func (g *Pager) readMessages(p *process) {
	p.more = false
	for n := 0; p.busy != opMove; n++ {
		if n == mostMessages {
			p.more = true
			return
		}
		m, err := p.uffd.Read()
		if err != nil {
			p.unread = !errors.Is(err, unix.EAGAIN) // no descriptor for a child: later, perhaps
			return
		}
		g.handleMessage(p, m)
		g.balancePages()
	}
}

// mustWait says whether a process has to wait with its faults until its agent has given memory
// back.
func (g *Pager) mustWait(p *process) bool { return p.busy == opDrop && g.pagesOver() > g.batch }

// handleMessage handles one message.
func (g *Pager) handleMessage(p *process, m uffd.Message) {
	switch m.Event {
	case uffd.Fault:
		if g.faultsBlocked(p) || !g.handleFault(p, m) {
			p.retry = append(p.retry, m)
		}
	case uffd.Fork:
		g.forkProcess(p, m.Child)
	case uffd.Remap:
		p.late = append(p.late, move{Message: m})
	case uffd.Remove:
		if !p.inArea(m.Start) {
			p.guards = p.guards || p.unguardedPages(m.Start/pageSize, guardsLooked) < guardsLooked
			for _, s := range p.stayedParts(m.Start, m.End) {
				g.removePages(p, s.Start, s.End)
			}
			g.removeLate(p, m.Start, m.End)
		}
	case uffd.Unmap:
		g.unmapRange(p, m.Start, m.End)
	}
	g.settleMoves(p)
}

// guardsLooked is in how many pages that were given back a guard is looked for. The library
// gives back what has just got guards, so that all of these pages have them.
const guardsLooked = 16

// settleMoves handles moves of memory. The kernel may report what threads do in another order
// than they did it: a move to where there is memory, as far as was reported, waits for what has
// taken that away, as long as anything has not been reported.
func (g *Pager) settleMoves(p *process) {
	for len(p.late) > 0 {
		i := p.applicableMove()
		if i < 0 {
			if p.isChanging() {
				return
			}
			i = 0
		}
		m := p.late[i]
		p.late = slices.Delete(p.late, i, i+1)
		g.remapPages(p, m.Start, m.To, m.End-m.Start)
		if !m.unmapped {
			p.moved = append(p.moved, m.fromSpan())
		}
		for c := range g.processes {
			if c.unsettled == p {
				g.movedSinceFork(c, m)
			}
		}
	}
	if (len(p.moved) > 0 || p.hasUnsettled) && !p.isChanging() {
		p.moved = nil
		if p.hasUnsettled {
			p.hasUnsettled = false
			for c := range g.processes {
				if c.unsettled == p {
					g.endForkWait(c)
				}
			}
		}
	}
}

// applicableMove returns which of the late moves can be done now, -1 if none can.
func (p *process) applicableMove() int {
	return slices.IndexFunc(p.late, func(m move) bool {
		for _, before := range p.late { // what moved to where this comes from goes first
			if before == m {
				break
			}
			if before.To < m.End && m.Start < before.To+before.End-before.Start {
				return false
			}
		}
		return !p.hasMemory(m.To, m.To+m.End-m.Start)
	})
}

// removeLate forgets the pages of a range that are to move there yet: who gives them back does
// so after the move.
func (g *Pager) removeLate(p *process, start, end uint64) {
	for _, m := range p.late {
		from, to := max(start, m.To), min(end, m.To+m.End-m.Start)
		if from < to {
			g.removePages(p, from-m.To+m.Start, to-m.To+m.Start)
		}
	}
}

// move is a move of memory that is not handled yet.
type move struct {
	uffd.Message
	unmapped bool // it was reported that where the memory was is unmapped
}

// fromSpan is where the memory was.
func (m *move) fromSpan() uffd.Span { return uffd.Span{Start: m.Start, End: m.End} }

// unmapRange forgets what was in a range. The kernel reports a move of memory, and then that
// where it was is unmapped: there may be other memory by then, or the move may not be handled
// yet. Then what is known of that place is what has moved, and is kept.
func (g *Pager) unmapRange(p *process, start, end uint64) {
	if i := slices.Index(p.moved, uffd.Span{Start: start, End: end}); i >= 0 {
		p.moved = slices.Delete(p.moved, i, i+1)
		return
	}
	for i := range p.late {
		if m := &p.late[i]; m.fromSpan() == (uffd.Span{Start: start, End: end}) && !m.unmapped {
			m.unmapped = true
			return
		}
	}
	for _, s := range p.stayedParts(start, end) {
		g.removePages(p, s.Start, s.End)
		p.spans.remove(s.Start, s.End)
	}
	for _, m := range p.late {
		if from := max(start, m.To); from < min(end, m.To+m.End-m.Start) && !p.isPaged(from) {
			g.removeLate(p, start, end) // it was unmapped after the move
		}
	}
}

// stayedParts returns of a range what no late move has taken away. Of the rest, the pager has
// what has moved.
func (p *process) stayedParts(start, end uint64) []uffd.Span {
	s := spanSet{[]uffd.Span{{Start: start, End: end}}}
	for i := range p.late {
		s.remove(p.late[i].Start, p.late[i].End)
	}
	return s.spans
}

// hasMemory says whether there is memory in a range, as far as was reported.
func (p *process) hasMemory(start, end uint64) bool {
	if left := p.spans.missingSpans(start, end); len(left) != 1 || left[0] != (uffd.Span{Start: start, End: end}) {
		return true
	}
	taken := false
	p.pages.eachPage(start/pageSize, end/pageSize, func(_ uint64, page *page) { taken = taken || page.state != untouched })
	return taken
}

// isChanging says whether the kernel has yet to report a change of the process's memory.
func (p *process) isChanging() bool {
	return errors.Is(p.uffd.WriteProtect(p.hello.markAddress(), pageSize, false), unix.EAGAIN)
}

// isPaged says whether the process has memory at an address that is paged. A page that it asks
// for is protected then.
func (p *process) isPaged(address uint64) bool {
	return !errors.Is(p.uffd.WriteProtect(address, pageSize, true), unix.ENOENT)
}

// faultsBlocked says whether the faults of a process have to wait.
func (g *Pager) faultsBlocked(p *process) bool {
	return p.unsettled != nil || len(p.late) > 0 || g.mustWait(p)
}

// retryFaults looks at faults again that came while memory was changing.
func (g *Pager) retryFaults() {
	for p := range g.processes {
		if p.unread || p.more {
			g.readMessages(p)
		}
		g.settleMoves(p)
		if p.busy == opMove || len(p.retry) == 0 || g.faultsBlocked(p) {
			continue
		}
		waiting := p.retry
		p.retry = nil
		for _, m := range waiting {
			if !g.handleFault(p, m) {
				p.retry = append(p.retry, m)
			}
		}
	}
}

// removePages forgets the pages of a range: the program has given them back.
func (g *Pager) removePages(p *process, start, end uint64) {
	p.pages.eachPage(start/pageSize, (end+pageSize-1)/pageSize, func(_ uint64, page *page) { g.forgetPage(p, page) })
}

// remapPages notes that pages have other addresses now.
func (g *Pager) remapPages(p *process, from, to, length uint64) {
	g.removePages(p, to, to+length)
	type moving struct {
		number uint64
		page   page
	}
	var all []moving
	p.pages.eachPage(from/pageSize, (from+length)/pageSize, func(number uint64, page *page) {
		if page.state != untouched {
			all = append(all, moving{number, *page})
		}
		page.resetPage()
	})
	for _, m := range all {
		number := m.number - from/pageSize + to/pageSize
		page := p.pages.makePage(number)
		age := page.age
		*page = m.page
		page.age = age
		switch page.state {
		case resident:
			p.queue.pushPage(number, page)
		case standby:
			p.ring.pages[page.slot] = number
		}
	}
	p.spans.remove(from, from+length)
	p.spans.add(to, to+length)
}

package pager

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// balancePages has pages leave while there are more than the share: by one command at a time,
// unless a process that is stopped does not obey. The largest process gives, or one that can:
// all memory of the largest may be locked.
func (g *Pager) balancePages() {
	if g.dead || g.pagesOver() <= 0 {
		return
	}
	for p := range g.processes {
		if p.busy != 0 && time.Since(p.since) < answerTime {
			return
		}
	}
	for p := g.largestProcess(); p != nil && !g.dead; p = g.largestProcess() {
		if g.evictFrom(p) {
			return
		}
		p.barren = true
	}
}

// answerTime is how long an agent may take before another process has to give memory.
const answerTime = 10 * time.Millisecond

// pagesOver is how many pages there are beyond the share, less a reserve.
func (g *Pager) pagesOver() int {
	held, untracked := 0, 0
	for p := range g.processes {
		if p.tracing == whole {
			continue
		}
		held += p.heldPages()
		untracked += p.untrackedPages()
	}
	room := max(g.limit-g.batch-untracked, g.limit/4)
	return held - room
}

// largestProcess returns the process with the most pages whose agent has nothing to do.
func (g *Pager) largestProcess() *process {
	var most *process
	for p := range g.processes {
		if p.adopted && p.tracing != whole && !p.barren && p.busy == 0 && p.agent >= 0 && (p.resident > 0 || p.ring.used > 0) && (most == nil || p.heldPages() > most.heldPages()) {
			most = p
		}
	}
	return most
}

// evictFrom begins the next step of a process: it moves the oldest pages to standby, or, if
// there are enough of these, gives the slots of the oldest back. It reports false if nothing can
// be done.
func (g *Pager) evictFrom(p *process) bool {
	r := &p.ring
	if len(p.late) > 0 || p.unsettled != nil {
		return false
	}
	if r.used+g.batch > len(r.pages) || p.queue.empty() {
		return g.startDrop(p)
	}
	return g.startMove(p) || g.startDrop(p)
}

// startMove has the agent move the oldest pages into free slots.
func (g *Pager) startMove(p *process) bool {
	var entries []entry
	r := &p.ring
	g.keepThreads(p)
	p.queue.removeVoid(&p.pages, p.resident)
choosing:
	for looked := 0; looked < 4*g.batch && p.countPages(entries) < g.batch && r.used < len(r.pages); looked++ {
		number, page := p.queue.popOldest(&p.pages)
		if page == nil {
			break
		}
		if page.flags&kept != 0 {
			p.queue.pushPage(number, page)
			continue
		}
		if page.flags&stays != 0 {
			page.flags -= oneStay
			p.queue.pushPage(number, page)
			continue
		}
		room := min(g.batch-p.countPages(entries), len(r.pages)-r.used, mostAround)
		first, n := p.rowAround(number, room)
		for at := first; at < first+uint64(n); at++ {
			if !p.choosePage(&entries, at) {
				if at <= number {
					p.queue.pushPage(number, page)
				}
				break choosing
			}
		}
	}
	if len(entries) == 0 {
		return false
	}
	if p.sendCommand(opMove, entries) != nil {
		g.dropProcess(p)
		return false
	}
	return true
}

// mostAround bounds how many pages leave together since they are in a row. Of more than 33, x86
// flushes the whole TLB and not page by page, which on a virtual machine can cost far less.
const mostAround = 64

// rowAround returns the row of up to most pages that leave with the oldest: they are beside it,
// and were not touched on standby. For each row that is moved, the kernel flushes the TLBs of
// all CPUs, which costs more than to move a page; and where pages are used at random, the age of
// a page says nothing of when it is wanted again.
func (p *process) rowAround(number uint64, most int) (first uint64, n int) {
	first, n = number, 1
	for n < most && p.mayLeave(first-1) {
		first, n = first-1, n+1
	}
	for n < most && p.mayLeave(first+uint64(n)) {
		n++
	}
	return first, n
}

// mayLeave says whether a page can leave before it is the oldest.
func (p *process) mayLeave(number uint64) bool {
	page := p.pages.getPage(number)
	return page != nil && page.state == resident && page.flags&(inherited|stays|parked|kept|leaving|alone) == 0
}

// choosePage adds a page to those that are to be moved, into the next slot, and takes it from
// the queue. It reports false if no more fit into a command.
func (p *process) choosePage(entries *[]entry, number uint64) bool {
	slot := uint32(p.ring.head)
	page := p.pages.getPage(number)
	var last entry
	if n := len(*entries); n > 0 {
		last = (*entries)[n-1]
	}
	single := page.flags&alone != 0
	if before := p.pages.getPage(number - 1); before != nil && before.flags&alone != 0 {
		single = true
	}
	switch {
	case !single && last.count > 0 && last.address+uint64(last.count)*pageSize == number*pageSize && last.slot+last.count == slot:
		(*entries)[len(*entries)-1].count++
	case len(*entries) < wireEntries:
		*entries = append(*entries, entry{number * pageSize, slot, 1})
	default:
		return false
	}
	page.flags |= leaving
	page.age++
	p.ring.head = p.ring.nextSlot(p.ring.head)
	p.ring.used++
	return true
}

// countPages is how many pages entries have.
func (p *process) countPages(entries []entry) int {
	n := 0
	for _, e := range entries {
		n += int(e.count)
	}
	return n
}

// noteMoved notes what the agent has moved. What it could not is in memory still.
func (g *Pager) noteMoved(p *process, entries []entry, all []done) {
	for i, e := range entries {
		for j := range e.count {
			number := e.address/pageSize + uint64(j)
			page := p.pages.getPage(number)
			if page == nil || page.state != resident {
				continue // it cannot be: no event was read meanwhile
			}
			page.flags &^= leaving
			if j < all[i].count {
				g.noteStandby(p, number, page, e.slot+j)
				continue
			}
			errno := unix.Errno(all[i].errno)
			switch {
			case errno == unix.EINVAL && e.count > 1: // locked, or of two areas: each by itself
				page.flags |= alone
				p.queue.pushPage(number, page)
			case j > all[i].count || errno == unix.EAGAIN:
				p.queue.pushPage(number, page)
			case errno == unix.ENOENT: // the kernel took it back: it is zeros now
				g.forgetPage(p, page)
			case errno == unix.EBUSY: // shared since a fork, or used by a device
				page.flags |= parked
				p.shared = append(p.shared, number)
				g.counts.Stuck++
			default: // locked, or not writable
				page.flags |= parked
				p.parked = append(p.parked, number)
				g.counts.Stuck++
			}
		}
	}
}

// noteStandby notes that a page is on standby in a slot.
func (g *Pager) noteStandby(p *process, number uint64, page *page, slot uint32) {
	if page.flags&inherited == 0 {
		p.resident--
	}
	page.flags &^= inherited | alone
	page.state, page.slot = standby, slot
	p.ring.pages[slot], p.ring.hasMemory[slot] = number, true
	p.ring.present++
	p.left++
	g.counts.Moved++
}

// forgetPage ends what is known of a page: it reads as zeros.
func (g *Pager) forgetPage(p *process, page *page) {
	switch page.state {
	case resident:
		if page.flags&inherited == 0 {
			p.resident--
		}
	case standby:
		p.ring.pages[page.slot] = 0
	}
	g.places.endUse(page.place)
	page.resetPage()
}

// startDrop writes the pages of the oldest slots to the store and has the agent give the slots
// back.
func (g *Pager) startDrop(p *process) bool {
	r := &p.ring
	n := min(g.batch, r.used)
	if n == 0 {
		return false
	}
	if !g.cleanSlots(p, r.tail, n) {
		return false
	}
	var entries []entry
	slot := r.tail
	for range n {
		if number := r.pages[slot]; number != 0 {
			page := p.pages.getPage(number)
			page.state = untouched
			if page.place != 0 {
				page.state = remote
			}
			r.pages[slot] = 0
		}
		last := len(entries) - 1
		if last >= 0 && entries[last].slot+entries[last].count == uint32(slot) {
			entries[last].count++
		} else {
			entries = append(entries, entry{0, uint32(slot), 1})
		}
		slot = r.nextSlot(slot)
	}
	if p.sendCommand(opDrop, entries) != nil {
		g.dropProcess(p)
		return false
	}
	return true
}

// noteDropped notes that slots were given back.
func (g *Pager) noteDropped(p *process, entries []entry) {
	r := &p.ring
	for _, e := range entries {
		for range e.count {
			if r.hasMemory[r.tail] {
				r.hasMemory[r.tail] = false
				r.present--
			}
			r.tail = r.nextSlot(r.tail)
			r.used--
		}
	}
}

// cleanSlots writes n slots from slot on to the store, as far as they have what is not there
// yet. It reports false if that was not possible: then the store is lost or full.
func (g *Pager) cleanSlots(p *process, slot, n int) bool {
	r := &p.ring
	for n > 0 {
		run := 0
		for run < n && slot+run < len(r.pages) && r.hasMemory[slot+run] && g.isUnsaved(p, slot+run) {
			run++
		}
		if run == 0 {
			slot, n = r.nextSlot(slot), n-1
			continue
		}
		run = min(run, len(g.buffer)/pageSize)
		if !g.saveSlots(p, slot, run) {
			return false
		}
		n -= run
		if slot += run; slot == len(r.pages) {
			slot = 0
		}
	}
	return true
}

// isUnsaved says whether a slot has a page whose content is nowhere else, or not any longer.
func (g *Pager) isUnsaved(p *process, slot int) bool {
	number := p.ring.pages[slot]
	if number == 0 {
		return false
	}
	page := p.pages.getPage(number)
	if page.flags&dirty != 0 || page.place == 0 {
		return page.flags&dirty != 0
	}
	k, ok := g.store.(Keeper)
	return ok && !k.Keeps(placeOffset(page.place), pageSize)
}

// saveSlots writes the pages of slots in a row, all unsaved.
func (g *Pager) saveSlots(p *process, slot, run int) bool {
	buf := g.buffer[:run*pageSize]
	if _, err := p.mem.ReadAt(buf, int64(p.hello.slots)+int64(slot)*pageSize); err != nil {
		return false // the process has ended
	}
	for i := 0; i < run; {
		page := p.pages.getPage(p.ring.pages[slot+i])
		if bytes.Equal(buf[i*pageSize:(i+1)*pageSize], zeros[:pageSize]) {
			g.places.endUse(page.place)
			page.place = 0
			page.flags &^= dirty
			i++
			continue
		}
		n := g.placePages(p, slot+i, run-i, page)
		if n == 0 {
			g.killAll()
			return false
		}
		if _, err := g.store.WriteAt(buf[i*pageSize:(i+n)*pageSize], placeOffset(page.place)); err != nil {
			if errors.Is(err, ErrFull) {
				g.killAll()
				return false
			}
			g.dead = true
			if g.said["lost"] { // that line says it
				return false
			}
			g.sayOnce("dead", "the store is lost (%v): memory that is there ends who touches it with SIGBUS, and the rest stays here", err)
			return false
		}
		for j := range n {
			p.pages.getPage(p.ring.pages[slot+i+j]).flags &^= dirty
		}
		g.counts.Saved += uint64(n)
		i += n
	}
	return true
}

// placePages finds places in a row for the pages of up to run slots, the first of which has
// page. It returns for how many, and has set their places.
func (g *Pager) placePages(p *process, slot, run int, page *page) int {
	if page.place != 0 && g.places.hasOneUser(page.place) { // it overwrites its own
		n := 1
		for n < run {
			next := p.pages.getPage(p.ring.pages[slot+n])
			if next.place != page.place+uint32(n) || !g.places.hasOneUser(next.place) {
				break
			}
			n++
		}
		return n
	}
	want := 1
	for want < run {
		next := p.pages.getPage(p.ring.pages[slot+want])
		if next.place != 0 && g.places.hasOneUser(next.place) {
			break
		}
		want++
	}
	first, n := g.places.takeRow(want)
	for i := range n {
		next := p.pages.getPage(p.ring.pages[slot+i])
		g.places.endUse(next.place)
		next.place = first + uint32(i)
	}
	return n
}

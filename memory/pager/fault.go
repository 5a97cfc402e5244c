package pager

import (
	"encoding/binary"
	"errors"

	"exnet/foreign"
	"exnet/memory/pager/uffd"

	"golang.org/x/sys/unix"
)

const pageSize = uffd.PageSize

// zeros are the pages that untouched memory reads as.
var zeros = make([]byte, (largestWindow+1)*pageSize)

// handleFault gives a thread the page that it waits for. It reports false if the process's
// memory is changing just now: the fault is to be looked at again when that is known.
func (g *Pager) handleFault(p *process, m uffd.Message) bool {
	address := m.Start &^ (pageSize - 1)
	if p.inArea(address) {
		return g.areaFault(p, address)
	}
	g.follow.countFault(p.pid, m.Thread)
	number := address / pageSize
	page := p.pages.makePage(number)
	if m.Protected {
		return g.allowWrite(p, number, page)
	}
	g.counts.Faults++
	if p.unguardedPages(number, 1) == 0 { // it has just got a guard
		p.wakeThreads(address)
		return true
	}
	switch page.state {
	case untouched:
		return g.fillPages(p, number)
	case remote:
		return g.fetchPage(p, number, page)
	case standby:
		return g.giveBack(p, number, page)
	}
	// The page came for another thread, or the program gave it back: then it is zeros.
	n, err := p.uffd.Copy(address, zeros[:pageSize], false)
	switch {
	case n > 0:
		g.counts.Filled++
		g.places.endUse(page.place)
		page.place = 0
		page.flags |= dirty
	case errors.Is(err, unix.EEXIST):
		p.wakeThreads(address)
	}
	return !errors.Is(err, unix.EAGAIN)
}

// unguardedPages returns how many pages of a run, from its first on, are not behind a guard of
// the program's (MADV_GUARD_INSTALL): a page that is given takes its guard away.
func (p *process) unguardedPages(number uint64, run int) int {
	if p.maps == nil || run == 1 && !p.guards { // without maps, it has not said hello
		return min(run, 1)
	}
	start := number * pageSize
	guard, ok := uffd.Guard(int(p.maps.Fd()), start, start+uint64(run)*pageSize)
	if !ok {
		return run
	}
	return int((guard.Start - start) / pageSize)
}

// wakeThreads has who waits for a page look again.
func (p *process) wakeThreads(address uint64) { _ = p.uffd.Wake(address, pageSize) }

// areaFault serves the library's own memory.
func (g *Pager) areaFault(p *process, address uint64) bool {
	content := zeros[:pageSize]
	if address == p.hello.markAddress() {
		content = p.markPage()
	}
	_, err := p.uffd.Copy(address, content, false)
	if err != nil {
		p.wakeThreads(address)
	}
	return !errors.Is(err, unix.EAGAIN)
}

// markPage is the page by which a child finds who it is.
func (p *process) markPage() []byte {
	return append(binary.NativeEndian.AppendUint64(make([]byte, 0, pageSize), p.token), zeros[:pageSize-8]...)
}

// allowWrite lets a thread write to a page that was protected, and remembers that.
func (g *Pager) allowWrite(p *process, number uint64, page *page) bool {
	address := number * pageSize
	if page.state == standby || page.state == remote {
		p.wakeThreads(address) // it has left meanwhile
		return true
	}
	if err := p.uffd.WriteProtect(address, pageSize, false); err != nil {
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		p.wakeThreads(address)
		return true
	}
	g.counts.Writes++
	if page.state == untouched { // the pager had lost sight of it
		p.noteArrived(number, page, dirty)
	}
	page.flags |= dirty
	return true
}

// noteArrived notes that a page is in memory now.
func (p *process) noteArrived(number uint64, page *page, f flags) {
	page.state = resident
	page.flags = page.flags&stays | f
	p.resident++
	p.barren = false
	p.queue.pushPage(number, page)
}

// fillPages gives untouched memory its first page, and the next ones if it is filled in a row.
func (g *Pager) fillPages(p *process, number uint64) bool {
	run := 1
	s := p.streams.missPage(number)
	if s != nil && s.stride == 1 {
		for run <= s.window && p.spans.has((number+uint64(run))*pageSize) {
			if next := p.pages.getPage(number + uint64(run)); next != nil && next.state != untouched {
				break
			}
			run++
		}
		run = max(p.unguardedPages(number, run), 1)
	}
	n, err := p.uffd.Copy(number*pageSize, zeros[:run*pageSize], false)
	if run > 1 && errors.Is(err, unix.ENOENT) { // an area ends before the run does
		n, err = p.uffd.Copy(number*pageSize, zeros[:pageSize], false)
	}
	for i := range n / pageSize {
		at := number + uint64(i)
		p.noteArrived(at, p.pages.makePage(at), dirty)
	}
	if n > 0 && !p.spans.has(number*pageSize) { // an area has grown
		p.spans.add(number*pageSize, number*pageSize+uint64(n))
	}
	g.counts.Filled += uint64(n / pageSize)
	if n > 0 {
		s.expectNext(number + uint64(n/pageSize))
		return true
	}
	return g.explainUnfilled(p, number, err)
}

// explainUnfilled looks why a page could not be given.
func (g *Pager) explainUnfilled(p *process, number uint64, err error) bool {
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false
	case errors.Is(err, unix.EEXIST): // the kernel had one all the time
		if page := p.pages.makePage(number); page.state == untouched {
			p.noteArrived(number, page, dirty)
		}
	}
	p.wakeThreads(number * pageSize)
	return true
}

// giveBack gives a page on standby back. Who was wanted again soon is kept longer.
func (g *Pager) giveBack(p *process, number uint64, page *page) bool {
	slot := page.slot
	buf := g.buffer[:pageSize]
	if _, err := p.mem.ReadAt(buf, int64(p.hello.slots)+int64(slot)*pageSize); err != nil {
		return g.endByLoss(p, number, err)
	}
	changed := page.flags & dirty
	n, err := p.uffd.Copy(number*pageSize, buf, changed == 0)
	if n == 0 {
		return g.explainUnfilled(p, number, err)
	}
	g.counts.Returned++
	p.ring.pages[slot] = 0
	page.flags |= stays
	p.noteArrived(number, page, changed)
	return true
}

// fetchPage brings a page from the store, at once with those after it that are expected next:
// who waits for it would wait for the second, too, and be woken twice.
func (g *Pager) fetchPage(p *process, number uint64, page *page) bool {
	s, run := p.streams.missPage(number), 1
	if s != nil && s.stride == 1 {
		run = p.inStore(number, page.place, s.window+1)
	}
	n, gone, err := g.bringPages(p, number, page.place, run)
	if n == 0 && run > 1 { // one of the others may be lost, or an area end before the run does
		n, gone, err = g.bringPages(p, number, page.place, 1)
	}
	if gone != nil {
		return g.endByLoss(p, number, gone)
	}
	if n == 0 {
		s.expectNext(number)
		return g.explainUnfilled(p, number, err)
	}
	n /= pageSize
	for i := range n {
		at := number + uint64(i)
		p.noteArrived(at, p.pages.getPage(at), 0)
	}
	g.counts.Fetched++
	g.counts.Ahead += uint64(n - 1)
	last := number + uint64(n-1)
	switch {
	case s != nil && n == run:
		g.fetchAhead(p, last, s, s.window-(n-1))
	default:
		s.expectNext(last + 1)
	}
	return true
}

// inStore returns how many pages from number on, at most limit, are in a row in the store. The
// first is there, at place.
func (p *process) inStore(number uint64, place uint32, limit int) int {
	run := 1
	for run < limit {
		next := p.pages.getPage(number + uint64(run))
		if next == nil || next.state != remote || next.place != place+uint32(run) {
			break
		}
		run++
	}
	return run
}

// fetchAhead fetches up to left pages of a stream beyond number. Pages that are not in the store
// are left out.
func (g *Pager) fetchAhead(p *process, number uint64, s *stream, left int) {
	at := number
	for left > 0 {
		at += uint64(s.stride)
		page := p.pages.getPage(at)
		left--
		if page == nil || page.state != remote {
			continue
		}
		run := 1
		if s.stride == 1 {
			run = p.inStore(at, page.place, left+1)
		}
		if !g.fetchRun(p, at, page.place, run) {
			break
		}
		left -= run - 1
		at += uint64(run-1) * uint64(s.stride)
	}
	s.expectNext(at + uint64(s.stride))
}

// fetchRun brings pages in a row that are in a row in the store, too.
func (g *Pager) fetchRun(p *process, number uint64, place uint32, run int) bool {
	n, _, _ := g.bringPages(p, number, place, run) // whoever touches a page that is lost will hear of it
	for i := range n / pageSize {
		at := number + uint64(i)
		p.noteArrived(at, p.pages.getPage(at), 0)
	}
	g.counts.Ahead += uint64(n / pageSize)
	return n == run*pageSize
}

// bringPages copies pages in a row from the store to a process: at once where the store's
// content is mapped here, otherwise by way of the buffer. It returns how many bytes have come,
// and why the store has not got them (gone) or the process not taken them.
func (g *Pager) bringPages(p *process, number uint64, place uint32, run int) (n int, gone, err error) {
	if run = p.unguardedPages(number, run); run == 0 {
		return 0, nil, unix.EEXIST
	}
	if v, ok := g.store.(Viewer); ok && place != 0 {
		ok = v.View(placeOffset(place), int64(run)*pageSize, func(m foreign.Memory) {
			n, err = p.uffd.CopyForeign(number*pageSize, m, true)
		})
		if ok && (n > 0 || !errors.Is(err, unix.EFAULT)) {
			return n, nil, err
		}
	}
	buf := g.buffer[:run*pageSize]
	if err := g.readStore(buf, place); err != nil {
		return 0, err, nil
	}
	n, err = p.uffd.Copy(number*pageSize, buf, true)
	return n, nil, err
}

// errNowhere says that a page could not be saved when its process forked.
var errNowhere = errors.New("it could not be saved")

func (g *Pager) readStore(buf []byte, place uint32) error {
	if place == 0 {
		return errNowhere
	}
	_, err := g.store.ReadAt(buf, placeOffset(place))
	return err
}

// endByLoss ends who touches a page whose content is gone with SIGBUS.
func (g *Pager) endByLoss(p *process, number uint64, err error) bool {
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if !g.said["dead"] { // that line says it
		g.sayOnce("lost", "memory of process %d is lost (%v): whoever touches it gets SIGBUS", p.pid, err)
	}
	perr := p.uffd.Poison(number*pageSize, pageSize)
	if perr != nil && !errors.Is(perr, unix.EAGAIN) {
		p.wakeThreads(number * pageSize)
	}
	return !errors.Is(perr, unix.EAGAIN)
}

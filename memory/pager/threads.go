package pager

import (
	"os"
	"strconv"

	"exnet/memory/pager/uffd"
)

// keepThreads keeps the pages here that the kernel writes to when a thread ends: the thread's
// ID, which says to who joins it that it has ended. The kernel does not wait for the pager
// there, so if the page was elsewhere then, or protected, nobody would hear of the end.
//
// The pages of new threads are found before they are the oldest: it takes a part of the pages to
// leave until this is called again.
func (g *Pager) keepThreads(p *process) {
	if p.listed && p.left < min(g.limit/8, p.resident/2) || g.faultsBlocked(p) {
		return
	}
	p.left, p.listed = 0, true
	f, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/task")
	if err != nil {
		return
	}
	defer f.Close()
	for _, number := range p.keeps { // a thread may have ended, and its stack be memory like any other
		if page := p.pages.getPage(number); page != nil {
			page.flags &^= kept
		}
	}
	p.keeps = p.keeps[:0]
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if at := uffd.ThreadID(tid); at != 0 && !g.keepPage(p, at/pageSize) {
			p.listed = false // memory changes: again, soon
		}
	}
}

// keepPage keeps a page here, to be written to at any time: up to a quarter of the share, as a
// program says where its threads' memory is. It reports false if that is not possible just now.
func (g *Pager) keepPage(p *process, number uint64) bool {
	page := p.pages.getPage(number)
	if page == nil || page.state == untouched || page.flags&kept != 0 || len(p.keeps) >= g.limit/4 {
		return true
	}
	if page.state == remote && page.place == 0 { // it is lost, and was said to be
		return true
	}
	switch page.state {
	case standby:
		g.giveBack(p, number, page)
	case remote:
		g.fetchPage(p, number, page)
	}
	if page.state != resident {
		return false
	}
	if page.flags&dirty == 0 && p.uffd.WriteProtect(number*pageSize, pageSize, false) != nil {
		return false
	}
	page.flags |= dirty | kept
	p.keeps = append(p.keeps, number)
	return true
}

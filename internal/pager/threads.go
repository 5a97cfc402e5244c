package pager

import (
	"os"
	"strconv"

	"exnet/internal/pager/uffd"
)

// keepThreads keeps the pages here that the kernel writes to when a thread ends: the thread's ID,
// which says to who joins it that it has ended. The kernel does not wait for the pager there, so if
// the page was elsewhere then, or protected, nobody would hear of the end.
//
// The pages of new threads are found before they are the oldest: it takes a part of the pages to
// leave until this is called again.
func (g *Pager) keepThreads(p *process) {
	if p.listed && p.left < min(g.limit/8, p.resident/2) || g.blocked(p) {
		return
	}
	p.left, p.listed = 0, true
	f, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/task")
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if at := uffd.ThreadID(tid); at != 0 && !g.keep(p, at/pageSize) {
			p.listed = false // memory changes: again, soon
		}
	}
}

// keep keeps a page here, to be written to at any time. It reports false if that is not possible
// just now.
func (g *Pager) keep(p *process, number uint64) bool {
	page := p.pages.get(number)
	if page == nil || page.state == untouched || page.flags&kept != 0 {
		return true
	}
	switch page.state {
	case standby:
		g.back(p, number, page)
	case remote:
		g.fetch(p, number, page)
	}
	if page.state != resident {
		return false
	}
	if page.flags&dirty == 0 && p.uffd.WriteProtect(number*pageSize, pageSize, false) != nil {
		return false
	}
	page.flags |= dirty | kept
	return true
}

package pager

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"

	"exnet/memory/pager/uffd"

	"golang.org/x/sys/unix"
)

// area is private, anonymous memory, as a line of /proc/PID/maps has it.
type area struct {
	uffd.Span
	writable bool
	heap     bool
}

// parseAnonymous reads a line of /proc/PID/maps. It reports false if that is no private,
// anonymous memory, or code.
func parseAnonymous(line string) (area, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || len(fields[1]) != 4 || fields[1][2:] != "-p" || fields[4] != "0" {
		return area{}, false
	}
	a := area{writable: fields[1] == "rw-p"}
	if len(fields) > 5 {
		if a.heap = fields[5] == "[heap]"; !a.heap && !strings.HasPrefix(fields[5], "[anon") {
			return area{}, false // a stack, vvar, vdso
		}
	}
	from, to, _ := strings.Cut(fields[0], "-")
	var err1, err2 error
	a.Start, err1 = strconv.ParseUint(from, 16, 64)
	a.End, err2 = strconv.ParseUint(to, 16, 64)
	return a, err1 == nil && err2 == nil && a.Start < a.End && a.End <= 1<<56
}

// readAreas reads a process's memory map. What it returns is of the past.
func (p *process) readAreas() (all []area) {
	f, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/maps")
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if a, ok := parseAnonymous(lines.Text()); ok {
			all = append(all, a)
		}
	}
	if lines.Err() != nil {
		return nil // the process has ended
	}
	return all
}

// touchingAreas returns how many of the areas touch, from the first on, and whether they are to
// be paged: they are large, or the heap. The program may have made them of one area, by mprotect
// or mlock, and may move all at once later: the kernel does so only if all are registered.
func touchingAreas(areas []area) (n int, large bool) {
	n = 1
	heap := areas[0].heap
	for n < len(areas) && areas[n].Start == areas[n-1].End {
		heap = heap || areas[n].heap
		n++
	}
	return n, heap || areas[n-1].End-areas[0].Start >= smallestArea
}

// scanAreas has all large areas of anonymous memory paged that are not yet. An area is
// registered when it is seen first, and paged when it is seen again: while the map is read, the
// program changes its memory, so that what was registered may have a hole, or be memory that has
// moved there.
func (g *Pager) scanAreas(p *process) {
	p.rescan = rescanTicks
	if len(p.late) > 0 || p.unsettled != nil || p.isChanging() {
		p.rescan = 1
		return
	}
	if g.takeAreas(p, p.readAreas()) {
		g.takeAreas(p, p.readAreas())
	}
	if !p.isChanging() {
		g.lookForPages(p)
	}
}

// takeAreas has areas paged that are registered, and registers others: then it returns true. An
// area that is registered, while the kernel has no change to report, has not changed since it
// was read in the map: that would have been reported.
func (g *Pager) takeAreas(p *process, areas []area) (again bool) {
	for len(areas) > 0 {
		n, large := touchingAreas(areas)
		all := uffd.Span{Start: areas[0].Start, End: areas[n-1].End}
		for _, s := range p.unpagedParts(areas[:n]) {
			if !large {
				break
			}
			err := p.uffd.WriteProtect(s.Start, pageSize, false)
			if err == nil {
				g.pageArea(p, s)
				continue
			}
			again = true
			p.registerArea(all, s) // also amid a change: no area is to be registered in part for long
			if errors.Is(err, unix.EAGAIN) {
				p.rescan = 1
			}
		}
		areas = areas[n:]
	}
	return again
}

// unpagedParts returns what of the writable ones of areas is not paged, and not the library's
// own.
func (p *process) unpagedParts(areas []area) (all []uffd.Span) {
	for _, a := range areas {
		if !a.writable {
			continue
		}
		for _, s := range p.outsideLibrary(a.Span) {
			all = append(all, p.spans.missingSpans(s.Start, s.End)...)
		}
	}
	return all
}

// outsideLibrary returns what of an area is not the library's own.
func (p *process) outsideLibrary(area uffd.Span) []uffd.Span {
	own := spanSet{}
	own.add(p.hello.base, p.hello.end)
	return own.missingSpans(area.Start, area.End)
}

// registerArea has the faults of all reported, or if that cannot be, of part: all may have
// memory of another userfaultfd.
func (p *process) registerArea(all, part uffd.Span) {
	for _, s := range p.outsideLibrary(all) {
		if s.Start <= part.Start && part.End <= s.End && p.uffd.Register(s.Start, s.End-s.Start) == nil {
			return
		}
	}
	_ = p.uffd.Register(part.Start, part.End-part.Start) // or it stays unpaged
}

// pageArea has an area paged that is registered, with the pages that it has already.
func (g *Pager) pageArea(p *process, area uffd.Span) {
	if p.uffd.Register(area.Start, area.End-area.Start) != nil {
		return // it belongs to another userfaultfd
	}
	p.spans.add(area.Start, area.End)
	g.findPages(p, area)
}

// lookForPages finds pages in areas that are paged of which nobody has told, when there is more
// memory that is not known than when it was looked for last: what was read before its area was
// registered, and never written to, has the kernel's page of zeros, and no fault tells of the
// first write.
func (g *Pager) lookForPages(p *process) {
	if p.rss-p.heldPages() > p.looked+max(64, g.limit/32) {
		for _, s := range p.spans.spans {
			g.findPages(p, s)
		}
	} else if p.rss-p.heldPages() > p.looked {
		return
	}
	p.looked = max(p.rss-p.heldPages(), 0)
}

// findPages takes pages of an area in that are there and not known.
func (g *Pager) findPages(p *process, area uffd.Span) {
	var found [64]uffd.Span
	for at := area.Start; at < area.End; {
		n, next, err := uffd.Present(int(p.maps.Fd()), at, area.End, found[:])
		if err != nil || next <= at {
			return
		}
		for _, s := range found[:n] {
			for number := s.Start / pageSize; number < s.End/pageSize; number++ {
				if page := p.pages.makePage(number); page.state == untouched {
					p.noteArrived(number, page, dirty)
				}
			}
		}
		at = next
	}
}

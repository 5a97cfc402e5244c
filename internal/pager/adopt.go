package pager

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"exnet/internal/pager/uffd"

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
		if len(p.retry) > 0 && p.busy == 0 {
			return 1 // what changes its memory is about to be told
		}
	}
	return max(int((time.Until(g.nextTick)+time.Millisecond-1)/time.Millisecond), 0)
}

// tick looks how large the processes are, and has those paged that are to be.
func (g *Pager) tick(now time.Time) {
	all, grows := 0, false
	for p := range g.processes {
		if p.agent < 0 {
			if p.gone() {
				g.drop(p)
			}
			continue
		}
		before := p.rss
		p.readRSS()
		all += max(p.rss, p.held())
		grows = grows || p.rss > before+16
	}
	g.counts.Here, g.counts.Most = uint64(all), max(g.counts.Most, uint64(all))
	left := g.limit/2 - all
	for p := range g.processes {
		if p.agent < 0 {
			continue
		}
		if p.adopted {
			p.rescan--
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
	g.nextTick = now.Add(wait)
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
		g.say("adopt", "process %d is not paged: %v", p.pid, err)
		g.drop(p)
		return
	}
	p.adopted = true
	g.scan(p)
}

// scan has all large areas of anonymous memory paged that are not yet.
func (g *Pager) scan(p *process) {
	if p.rescan = rescanTicks; p.changing() {
		p.rescan = 1
		return
	}
	f, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/maps")
	if err != nil {
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		area, ok := anonymous(lines.Text())
		if !ok {
			continue
		}
		for _, s := range p.outside(area) {
			if len(p.spans.lacks(s.Start, s.End)) > 0 {
				g.register(p, s)
			}
		}
	}
}

// outside returns what of an area is not the library's own.
func (p *process) outside(area uffd.Span) []uffd.Span {
	own := spanSet{}
	own.add(p.hello.base, p.hello.end)
	return own.lacks(area.Start, area.End)
}

// anonymous reads a line of /proc/PID/maps. It returns an area if it is private, anonymous memory
// that is read and written, and is large or the heap.
func anonymous(line string) (uffd.Span, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || fields[1] != "rw-p" || fields[4] != "0" {
		return uffd.Span{}, false
	}
	heap := false
	if len(fields) > 5 {
		if heap = fields[5] == "[heap]"; !heap && !strings.HasPrefix(fields[5], "[anon") {
			return uffd.Span{}, false // a stack, vvar, vdso
		}
	}
	from, to, _ := strings.Cut(fields[0], "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || start >= end || end > 1<<56 || end-start < smallestArea && !heap {
		return uffd.Span{}, false
	}
	return uffd.Span{Start: start, End: end}, true
}

// register has an area paged, with the pages that it has already.
func (g *Pager) register(p *process, area uffd.Span) {
	if p.uffd.Register(area.Start, area.End-area.Start) != nil {
		return // it is gone, or belongs to another userfaultfd
	}
	p.spans.add(area.Start, area.End)
	var found [64]uffd.Span
	for at := area.Start; at < area.End; {
		n, next, err := uffd.Present(int(p.maps.Fd()), at, area.End, found[:])
		if err != nil || next <= at {
			return
		}
		for _, s := range found[:n] {
			for number := s.Start / pageSize; number < s.End/pageSize; number++ {
				if page := p.pages.make(number); page.state == untouched {
					p.arrived(number, page, dirty)
				}
			}
		}
		at = next
	}
}

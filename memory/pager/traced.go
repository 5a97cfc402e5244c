package pager

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"time"
)

// A debugger reads memory by ptrace or /proc/PID/mem, where the kernel does not wait for the
// pager: what is elsewhere is an error. So a process that its tracer has stopped gets all of its
// pages, if the host has memory for them, and none of them counts or leaves until it goes on.
type tracing uint8

const (
	untraced tracing = iota
	running          // it has a tracer, which has not stopped it
	halted           // its tracer had stopped it when the pager looked: if it has not run by the next look, it is to be whole
	whole            // its pages are here, or on their way
)

// How often the pager looks for tracers, and at processes that have one.
const (
	tracerTime = 50 * time.Millisecond
	stopTime   = 5 * time.Millisecond
)

// lookTraced looks which processes their tracers have stopped. A stop in which a process is
// found twice is not one of the moments that strace takes.
func (g *Pager) lookTraced(now time.Time) {
	if now.Before(g.nextTraced) {
		return
	}
	g.nextTraced = now.Add(tracerTime)
	for p := range g.processes {
		if !p.adopted || p.agent < 0 {
			continue
		}
		tracer, stop := p.tracerState()
		switch {
		case !tracer:
			p.tracing = untraced
			continue
		case stop == 0:
			p.tracing = running
		case p.tracing < halted || p.stop != stop:
			p.tracing = halted
		default:
			g.bringAll(p)
		}
		p.stop = stop
		g.nextTraced = now.Add(stopTime)
	}
}

// tracerState says whether a process has a tracer, and in which stop of it the process is: how
// often it has stopped by itself so far; 0: it is not in a stop.
func (p *process) tracerState() (tracer bool, stop uint64) {
	f, err := os.Open("/proc/" + strconv.Itoa(p.pid) + "/status")
	if err != nil {
		return false, 0
	}
	defer f.Close()
	stopped := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			stopped = strings.HasPrefix(value, "t")
		case "TracerPid":
			tracer = value != "0"
		case "voluntary_ctxt_switches":
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && stopped {
				return tracer, n + 1
			}
		}
	}
	return tracer, 0
}

// perLook is how many pages come at a look, so that others have their turn.
const perLook = 1 << 12

// bringAll gives a process all of its pages, as many as are to come at a look.
func (g *Pager) bringAll(p *process) {
	if p.tracing == halted {
		n := p.pagesElsewhere()
		if free, ok := freeMemory(); n > 0 && (!ok || int64(n)*pageSize > free/2) {
			g.sayOnce("traced", "a debugger has stopped process %d: it cannot read %d MiB of its memory that are elsewhere, as this host has not enough memory",
				p.pid, n*pageSize>>20)
			return
		}
		p.tracing = whole
	}
	left := perLook
	for at, c := range p.pages.chunks {
		for i := range c {
			number, page, came := at*chunkPages+uint64(i), &c[i], true
			switch {
			case page.state == standby:
				came = g.giveBack(p, number, page)
			case page.state == remote && page.place != 0:
				run := p.inStore(number, page.place, largestWindow)
				came = g.fetchRun(p, number, page.place, run)
				left -= run
			}
			if !came || left <= 0 {
				return
			}
		}
	}
}

// pagesElsewhere is how many pages of a process are not in its memory.
func (p *process) pagesElsewhere() (n int) {
	for _, c := range p.pages.chunks {
		for i := range c {
			if c[i].state == standby || c[i].state == remote {
				n++
			}
		}
	}
	return n
}

// freeMemory is how much memory this host has left, in bytes; false: that cannot be told.
func freeMemory() (int64, bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

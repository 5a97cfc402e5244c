package pager

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/memory/pager/uffd"
)

// promises are what the kernel promises of a process's memory to a child: the page table says
// nothing of it, since pages that are elsewhere look to the kernel like pages that never were.
type promises struct {
	known spanSet // of which areas the kernel has told
	empty spanSet // of these, memory that is zeros in a child (MADV_WIPEONFORK, MAP_DROPPABLE)
	none  spanSet // memory that a child does not get (MADV_DONTFORK)
}

// Flags of an area in /proc/PID/smaps, as proc(5) has them.
const (
	flagWipeOnFork = "wf"
	flagDontFork   = "dc"
)

// readPromises reads a /proc/PID/smaps.
func readPromises(smaps io.Reader) (p promises, err error) {
	var area uffd.Span
	for lines := bufio.NewScanner(smaps); ; {
		if !lines.Scan() {
			return p, lines.Err()
		}
		key, flags, _ := strings.Cut(lines.Text(), ":")
		if key != "VmFlags" {
			// An area's first line is the only one whose first word has a dash.
			if word, _, _ := strings.Cut(lines.Text(), " "); strings.Contains(word, "-") {
				if area, err = parseSpan(word); err != nil {
					return p, err
				}
			}
			continue
		}
		p.known.add(area.Start, area.End)
		for _, flag := range strings.Fields(flags) {
			switch flag {
			case flagWipeOnFork:
				p.empty.add(area.Start, area.End)
			case flagDontFork:
				p.none.add(area.Start, area.End)
			}
		}
	}
}

// parseSpan reads "START-END", as /proc/PID/maps has it.
func parseSpan(word string) (s uffd.Span, err error) {
	from, to, _ := strings.Cut(word, "-")
	if s.Start, err = strconv.ParseUint(from, 16, 64); err == nil {
		s.End, err = strconv.ParseUint(to, 16, 64)
	}
	return s, err
}

// askPromises asks the kernel what it promises of a process's memory. It is called before the
// thread that forks goes on (the library waits for that after fork), so that this is what the
// child was made by. What the kernel does not tell of, since other threads have changed it
// meanwhile or the process has ended, is not known.
func (p *process) askPromises() promises {
	pid := p.pid
	if pid == 0 {
		if pid = p.findPID(); pid == 0 {
			return promises{}
		}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return promises{}
	}
	defer f.Close()
	all, _ := readPromises(f) // what there is of it
	return all
}

// findPID returns the ID of a process that has not said hello, as it was made without the C
// library's fork: it is the one that has the token in its mark. 0: it was not found.
func (p *process) findPID() int {
	for range 50 { // its mark may be missing yet; the thread that has just forked stops that until it runs
		if _, err := p.uffd.Copy(p.hello.markAddress(), p.markPage(), false); !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && p.isProcess(pid) {
			return pid
		}
	}
	return 0
}

// isProcess says whether a process with an ID is this one. It reads no memory of processes that
// have not got the library's memory at the same place: that could be a file that nobody serves.
func (p *process) isProcess(pid int) bool {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		a, ok := parseAnonymous(lines.Text())
		if !ok || p.hello.markAddress() < a.Start || p.hello.markAddress() >= a.End {
			continue
		}
		mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return false
		}
		defer mem.Close()
		var raw [8]byte
		_, err = mem.ReadAt(raw[:], int64(p.hello.markAddress()))
		return err == nil && binary.NativeEndian.Uint64(raw[:]) == p.token
	}
	return false
}

// givesPage says whether a child gets its parent's page.
func (p *promises) givesPage(number uint64) bool {
	at := number * pageSize
	return !p.empty.has(at) && !p.none.has(at)
}

// movedSinceFork notes in a child of a parent that was changing its memory when it forked that
// memory of the parent has moved. What is promised of it is told where it is now.
func (g *Pager) movedSinceFork(c *process, m move) {
	at := m.Start
	if c.isPaged(m.To) && !c.isPaged(m.Start) { // it had been done before the fork
		g.remapPages(c, m.Start, m.To, m.End-m.Start)
		at = m.To
	}
	to := uffd.Span{Start: m.To, End: m.To + m.End - m.Start}
	if len(c.promised.known.missingSpans(to.Start, to.End)) > 0 {
		return
	}
	c.untold.remove(m.Start, m.End)
	for _, set := range []spanSet{c.promised.empty, c.promised.none} {
		for _, s := range set.spansWithin(to) {
			g.removePages(c, s.Start-to.Start+at, s.End-to.Start+at)
		}
	}
}

// endForkWait ends what a child of fork waits for. Of what is still not known how it was
// promised, it has nothing.
func (g *Pager) endForkWait(c *process) {
	c.unsettled = nil
	for _, s := range c.untold.spans {
		g.removePages(c, s.Start, s.End)
	}
	c.promised, c.untold = promises{}, spanSet{}
}

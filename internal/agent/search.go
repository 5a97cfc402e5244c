package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/caller"
)

// How processes are looked at. What is read of one is its own to fill, up to maxRead bytes twice.
const (
	// searchTime is how long one look reads processes. Those that it does not come to are for the
	// next ones, which go on with another namespace.
	searchTime = 25 * time.Millisecond
	// youngTime is how long a process is looked at each time, as a runtime starts another program
	// in it, and againTime how often after that.
	youngTime = 5 * time.Second
	againTime = 5 * time.Second
	// readTime is how long a process may take to be read: its memory may lie in a file that never
	// answers. Until it does, its container is not read.
	readTime = 100 * time.Millisecond
	// maxStuck is how many readers may wait for such ones in all.
	maxStuck = 64
)

// search looks for processes that ask for direct sockets. It belongs to one goroutine.
type search struct {
	proc  string
	known map[int]*process
	stuck map[string]chan bool // by container: a reader that has not come back
	turn  int
}

// process is what is known of one.
type process struct {
	inode       uint64 // of its network namespace
	asks        bool
	first, read time.Time // when it was first seen, and last read
	there       bool
}

func newSearch(proc string) *search {
	return &search{proc: proc, known: make(map[int]*process), stuck: make(map[string]chan bool)}
}

// due reports whether a process is to be read.
func (p *process) due(now time.Time) bool {
	return p.read.IsZero() || !p.asks && now.Sub(p.first) < youngTime || now.Sub(p.read) >= againTime
}

// find returns a process of each network namespace in which one asks for direct sockets, by the
// inode of the namespace; but is not of interest. It takes about searchTime.
func (s *search) find(now time.Time, but uint64) (map[uint64]int, error) {
	f, err := os.Open(s.proc)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for of, done := range s.stuck {
		select {
		case <-done:
			delete(s.stuck, of)
		default:
		}
	}
	for _, p := range s.known {
		p.there = false
	}
	waiting := make(map[uint64][]int) // processes that are due, of each namespace
	var order []uint64
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		inode, ok := namespaceOf(filepath.Join(s.proc, name, "ns/net"))
		if !ok || inode == but {
			continue // it has ended, or is a kernel thread
		}
		p := s.known[pid]
		if p == nil || p.inode != inode {
			p = &process{inode: inode, first: now}
			s.known[pid] = p
		}
		if p.there = true; p.due(now) {
			if len(waiting[inode]) == 0 {
				order = append(order, inode)
			}
			waiting[inode] = append(waiting[inode], pid)
		}
	}
	for pid, p := range s.known {
		if !p.there {
			delete(s.known, pid)
		}
	}
	for _, list := range waiting { // those first that were read longest ago, or never
		slices.SortFunc(list, func(a, b int) int { return s.known[a].read.Compare(s.known[b].read) })
	}
	s.read(now, order, waiting)
	found := make(map[uint64]int)
	for pid, p := range s.known {
		if p.asks {
			found[p.inode] = pid
		}
	}
	return found, nil
}

// read reads those that are due, one of each namespace after the other, so that one with many does
// not keep the others waiting.
func (s *search) read(now time.Time, order []uint64, waiting map[uint64][]int) {
	s.turn++
	for begin := time.Now(); len(order) > 0; {
		var rest []uint64
		for i := range order {
			inode := order[(i+s.turn)%len(order)]
			pid := waiting[inode][0]
			if waiting[inode] = waiting[inode][1:]; len(waiting[inode]) > 0 {
				rest = append(rest, inode)
			}
			if time.Since(begin) >= searchTime {
				return
			}
			p := s.known[pid]
			if asks, ok := s.ask(pid); ok {
				p.asks, p.read = asks, now
			}
		}
		order = rest
	}
}

// ask reads a process. ok false: that cannot be said now.
func (s *search) ask(pid int) (is, ok bool) {
	of := accountOf(s.proc, pid)
	if of == "" {
		of = strconv.FormatUint(s.known[pid].inode, 10)
	}
	if s.stuck[of] != nil || len(s.stuck) >= maxStuck {
		return false, false
	}
	dir, done := filepath.Join(s.proc, strconv.Itoa(pid)), make(chan bool, 1)
	go func() { done <- asks(dir) }()
	t := time.NewTimer(readTime)
	defer t.Stop()
	select {
	case is = <-done:
		return is, true
	case <-t.C:
		s.stuck[of] = done
		return false, false
	}
}

// meet reads a process of a namespace that nobody was known to ask in, and reports whether it asks.
func (s *search) meet(pid int, inode uint64, now time.Time) bool {
	p := s.known[pid]
	if p == nil || p.inode != inode {
		p = &process{inode: inode, first: now}
		s.known[pid] = p
	}
	if asks, ok := s.ask(pid); ok {
		p.asks, p.read = asks, now
	}
	return p.asks
}

// accountOf says whose limits a process has: those of the user in whose session it is, who may make
// cgroups of any name there, of its container, or else of its user; "": it is root's, in no
// container, and has none.
func accountOf(proc string, pid int) string {
	home := caller.HomeIn(read(filepath.Join(proc, strconv.Itoa(pid), "cgroup")))
	if home.User != 0 {
		return fmt.Sprint("user ", home.User)
	}
	if home.Container != "" {
		return home.Container
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(proc, strconv.Itoa(pid)), &st) != nil || st.Uid == 0 {
		return ""
	}
	return fmt.Sprint("user ", st.Uid)
}

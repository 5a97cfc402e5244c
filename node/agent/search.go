package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"exnet/node/rpc/caller"
)

// How processes are looked at. What is read of one is its own to fill, up to maxRead bytes twice.
const (
	// searchTime is how long one look reads processes. Those that it does not come to are for the
	// next ones, which begin with the accounts that have taken the least of it.
	searchTime = 25 * time.Millisecond
	// youngTime is how long a process is looked at each time, as a runtime starts another program
	// in it, and againTime how often after that.
	youngTime = 5 * time.Second
	againTime = 5 * time.Second
	// readTime is how long a process may take to be read: its memory may lie in a file that never
	// answers. Until it does, its account is not read.
	readTime = 100 * time.Millisecond
	// mostScanned is how many processes one look comes by: who may make processes can make tens of
	// thousands.
	mostScanned = 4096
	// maxStuck is how many readers may wait for such ones in all.
	maxStuck = 64
)

// search looks for processes that ask for direct sockets. It belongs to one goroutine.
type search struct {
	proc  string
	known map[int]*process
	stuck map[string]chan sight // by account: a reader that has not come back
	// spent is how long it took to read an account's processes lately: it is halved at each look.
	spent map[string]time.Duration
	turn  int
	limit int      // how many processes a look comes by
	list  *os.File // proc, while a scan is not complete
}

// process is what is known of one.
type process struct {
	inode       uint64 // of its network namespace
	account     string // see accountAt; as it was when it was first seen, or last read
	asks        bool
	first, read time.Time // when it was first seen, and last read
	seen        bool      // this scan has come by it

	// attach.go has these.
	image  image
	life   life
	tries  int       // how often it was attached to
	next   time.Time // not before this
	reason string
}

func newSearch(proc string) *search {
	return &search{proc: proc, limit: mostScanned, known: make(map[int]*process), stuck: make(map[string]chan sight), spent: make(map[string]time.Duration)}
}

// leastSpent is what spent forgets.
const leastSpent = 100 * time.Microsecond

// dueForRead reports whether a process is to be read.
func (p *process) dueForRead(now time.Time) bool {
	young := now.Sub(p.first) < youngTime && (!p.asks || p.life == other)
	return p.read.IsZero() || young || now.Sub(p.read) >= againTime
}

// findAskers returns a process of each network namespace in which one asks for direct sockets,
// by the inode of the namespace; but is not of interest. It takes about searchTime, and comes by
// some of the processes: see scanProc.
func (s *search) findAskers(now time.Time, but uint64) (map[uint64]int, error) {
	if err := s.scanProc(now, but); err != nil {
		return nil, err
	}
	for of, done := range s.stuck {
		select {
		case <-done:
			delete(s.stuck, of)
		default:
		}
	}
	for of := range s.spent {
		if s.spent[of] /= 2; s.spent[of] < leastSpent {
			delete(s.spent, of)
		}
	}
	due := make(map[string]*queue)
	for _, pid := range slices.Sorted(maps.Keys(s.known)) {
		if p := s.known[pid]; p.dueForRead(now) {
			if due[p.account] == nil {
				due[p.account] = &queue{waiting: make(map[uint64][]int)}
			}
			due[p.account].addProcess(p.inode, pid)
		}
	}
	s.readDue(now, due)
	found := make(map[uint64]int)
	for pid, p := range s.known {
		if _, has := found[p.inode]; has || !p.asks {
			continue
		}
		if inode, ok := namespaceOf(filepath.Join(s.proc, strconv.Itoa(pid), "ns/net")); !ok || inode != p.inode {
			delete(s.known, pid) // it has ended since the scan came by it, or left
			continue
		}
		found[p.inode] = pid
	}
	return found, nil
}

// scanProc goes through /proc, up to most processes of it, and on from there the next time. Of
// those that it knows, it forgets at the end the ones that it has not come by.
func (s *search) scanProc(now time.Time, but uint64) error {
	if s.list == nil {
		list, err := os.Open(s.proc)
		if err != nil {
			return err
		}
		s.list = list
		for _, p := range s.known {
			p.seen = false
		}
	}
	names, err := s.list.Readdirnames(s.limit)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		inode, ok := namespaceOf(filepath.Join(s.proc, name, "ns/net"))
		if !ok || inode == but {
			continue // it has ended, or is a kernel thread
		}
		s.processAt(pid, inode, now)
	}
	if err == nil && len(names) == s.limit {
		return nil
	}
	s.endScan()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for pid, p := range s.known {
		if !p.seen {
			delete(s.known, pid)
		}
	}
	return nil
}

// endScan ends a scan that is not complete.
func (s *search) endScan() {
	if s.list != nil {
		_ = s.list.Close() // it is only read
		s.list = nil
	}
}

// processAt returns what is known of a process, which is in a namespace now.
func (s *search) processAt(pid int, inode uint64, now time.Time) *process {
	p := s.known[pid]
	if p == nil || p.inode != inode {
		p = &process{inode: inode, account: s.accountAt(pid, inode), first: now}
		s.known[pid] = p
	}
	p.seen = true
	return p
}

// accountAt is accountOf, and of what is root's in no container its namespace.
func (s *search) accountAt(pid int, inode uint64) string {
	if of := accountOf(s.proc, pid); of != "" {
		return of
	}
	return strconv.FormatUint(inode, 10)
}

// queue has the processes of one account that are due.
type queue struct {
	namespaces []uint64 // in their order
	waiting    map[uint64][]int
}

func (q *queue) addProcess(inode uint64, pid int) {
	if len(q.waiting[inode]) == 0 {
		q.namespaces = append(q.namespaces, inode)
	}
	q.waiting[inode] = append(q.waiting[inode], pid)
}

// takeProcess takes one, of each namespace after the other.
func (q *queue) takeProcess() (pid int) {
	inode := q.namespaces[0]
	q.namespaces = q.namespaces[1:]
	pid = q.waiting[inode][0]
	if q.waiting[inode] = q.waiting[inode][1:]; len(q.waiting[inode]) > 0 {
		q.namespaces = append(q.namespaces, inode)
	}
	return pid
}

// readDue reads those that are due, one of each account after the other, so that one with many
// namespaces, or whose processes take long, does not keep the others waiting.
func (s *search) readDue(now time.Time, due map[string]*queue) {
	s.turn++
	for _, q := range due {
		for _, list := range q.waiting { // those first that were read longest ago, or never
			slices.SortFunc(list, func(a, b int) int { return s.known[a].read.Compare(s.known[b].read) })
		}
		first := s.turn % len(q.namespaces)
		q.namespaces = slices.Concat(q.namespaces[first:], q.namespaces[:first])
	}
	order := slices.SortedFunc(maps.Keys(due), func(a, b string) int { return cmp.Compare(s.spent[a], s.spent[b]) })
	for begin := time.Now(); len(order) > 0; {
		var rest []string
		for _, of := range order {
			if time.Since(begin) >= searchTime {
				return
			}
			if s.readProcess(due[of].takeProcess(), now); len(due[of].namespaces) > 0 {
				rest = append(rest, of)
			}
		}
		order = rest
	}
}

// readProcess reads a process that is known.
func (s *search) readProcess(pid int, now time.Time) {
	p, begin := s.known[pid], time.Now()
	p.account = s.accountAt(pid, p.inode)
	if seen, ok := s.readWithin(pid, p.account, p.image); ok {
		p.asks, p.read = seen.asks, now
		p.noteSight(seen)
	}
	s.spent[p.account] += time.Since(begin)
}

// readWithin reads a process of an account, which ran a program before. ok false: that cannot be
// said now.
func (s *search) readWithin(pid int, of string, before image) (is sight, ok bool) {
	if s.stuck[of] != nil || len(s.stuck) >= maxStuck {
		return sight{}, false
	}
	dir, done := filepath.Join(s.proc, strconv.Itoa(pid)), make(chan sight, 1)
	go func() { done <- readProcess(dir, before) }()
	t := time.NewTimer(readTime)
	defer t.Stop()
	select {
	case is = <-done:
		return is, true
	case <-t.C:
		s.stuck[of] = done
		return sight{}, false
	}
}

// readNewcomer reads a process of a namespace that nobody was known to ask in, and reports
// whether it asks.
func (s *search) readNewcomer(pid int, inode uint64, now time.Time) bool {
	p := s.processAt(pid, inode, now)
	s.readProcess(pid, now)
	return p.asks
}

// accountOf says whose limits a process has: those of the user in whose session it is, who may make
// cgroups of any name there, of its container, of the user who has made its user namespace, or else
// of its user; "": it is root's, in no container, and has none.
func accountOf(proc string, pid int) string {
	home := caller.HomeIn(readProc(filepath.Join(proc, strconv.Itoa(pid), "cgroup")))
	if home.User != 0 {
		return fmt.Sprint("user ", home.User)
	}
	if home.Container != "" {
		return home.Container
	}
	dir := filepath.Join(proc, strconv.Itoa(pid))
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Uid == 0 {
		return ""
	}
	of, inode := caller.UserIn(dir, st.Uid)
	if of == caller.Guest { // made by root: its processes share no more than a stranger's do
		return fmt.Sprint("user namespace ", inode)
	}
	return of.String()
}

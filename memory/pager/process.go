package pager

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"exnet/memory/pager/uffd"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"

	"golang.org/x/sys/unix"
)

// process is a process whose memory is paged, or may come to be.
type process struct {
	account caller.Account // of whoever said hello

	number uint64 // those that came later have higher ones

	pid   int      // 0: not known yet
	ref   int      // a descriptor of the process itself, of which mem is
	token uint64   // of a child of fork
	uffd  uffd.FD  // -1: none
	agent int      // socket to the library's thread; -1: not connected
	mem   *os.File // /proc/PID/mem, of this incarnation
	maps  *os.File // /proc/PID/pagemap
	statm *os.File // /proc/PID/statm
	hello hello

	adopted bool
	child   bool // of a fork while its parent was paged
	parent  *process
	forks   int     // children of fork that are there
	spans   spanSet // what is registered
	pages   table
	queue   queue
	parked  []uint64 // pages that could not be moved, for a while
	shared  []uint64 // pages that could not since they are shared with a child or were
	streams streams
	retry   []uffd.Message // faults that came while memory was changing
	unread  bool           // the kernel has messages that could not be read
	more    bool           // it may have more, which are read when others had their turn
	late    []move         // moves of memory that are not handled yet
	moved   []uffd.Span    // from where memory has moved: it is to be reported as unmapped
	// unsettled is the parent of a fork while changes before it may not have been reported.
	// Until then promised is what the kernel promised of its memory, untold that of which it did
	// not tell.
	unsettled    *process
	promised     promises
	untold       spanSet
	hasUnsettled bool // as a parent
	ring         ring

	left   int      // pages that left since its threads were looked at
	listed bool     // they were, and what they need is kept:
	keeps  []uint64 // these pages, by number

	resident int  // pages in its memory that count
	rss      int  // pages of anonymous memory, as the kernel counts
	looked   int  // pages of these that were found nowhere when all areas were looked through
	unknown  int  // pages of these at the last look that the pager did not know
	rescan   int  // ticks until its memory map is read again
	unparkIn int  // ticks until pages that could not be moved are tried again
	barren   bool // it has nothing to give, until the next tick or until pages come

	tracing tracing
	stop    uint64 // of its tracer, at the last look; 0: none
	// guards says that the program has installed a guard. It is no state: without it, a look
	// that would find none is spared at each fault.
	guards bool

	busy    uint32 // the operation that the agent does; 0: none
	entries []entry
	since   time.Time
}

// heldPages is how many pages of this host's memory it has, as far as the pager knows.
func (p *process) heldPages() int { return p.resident + p.ring.present }

// untrackedPages is how many it has beside these: small areas, stacks, what the kernel gave it.
func (p *process) untrackedPages() int {
	if p.child {
		return 0 // what it shares with its parent would count twice
	}
	return max(p.rss-p.heldPages(), 0)
}

// openFor opens what is needed of a process that said hello on the socket, and waits.
func (p *process) openFor(peer *unix.Ucred, agent int, h hello) error {
	dir, err := os.OpenRoot("/proc/" + strconv.Itoa(int(peer.Pid)))
	if err != nil {
		return err
	}
	defer dir.Close()
	var files [3]*os.File
	for i, name := range []string{"mem", "pagemap", "statm"} {
		if err == nil {
			files[i], err = dir.Open(name)
		}
	}
	ref := -1
	if err == nil {
		ref, err = unix.PidfdOpen(int(peer.Pid), 0)
	}
	if err == nil {
		err = isStill(dir, peer) // what is open is its memory of before
	}
	if err != nil {
		for _, f := range files {
			f.Close() // nil: it does nothing
		}
		if ref >= 0 {
			unix.Close(ref)
		}
		return err
	}
	p.pid, p.ref, p.agent, p.mem, p.maps, p.statm, p.hello = int(peer.Pid), ref, agent, files[0], files[1], files[2], h
	return nil
}

// readRSS asks the kernel how much anonymous memory the process has.
func (p *process) readRSS() {
	var buf [128]byte
	n, _ := p.statm.ReadAt(buf[:], 0) // as far as it goes
	fields := bytes.Fields(buf[:n])
	if len(fields) < 3 {
		return
	}
	all, err1 := strconv.Atoi(string(fields[1]))
	files, err2 := strconv.Atoi(string(fields[2]))
	if err1 == nil && err2 == nil {
		p.rss = max(all-files, 0)
	}
}

// inArea says whether an address is in the library's own memory.
func (p *process) inArea(address uint64) bool {
	return address >= p.hello.base && address < p.hello.end
}

// sendCommand has the agent do something.
func (p *process) sendCommand(op uint32, entries []entry) error {
	raw := appendCommand(make([]byte, 0, headLen+wireEntries*entryLen), op, entries)
	if err := unix.Sendto(p.agent, raw, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil); err != nil {
		return fmt.Errorf("pager: process %d: %w", p.pid, err)
	}
	p.busy, p.entries, p.since = op, entries, time.Now()
	return nil
}

// kill kills the process, which may have ended.
func (p *process) kill() {
	if p.mem != nil {
		_ = unix.PidfdSendSignal(p.ref, unix.SIGKILL, nil, 0)
	}
}

// closeProcess closes what is open of the process.
func (p *process) closeProcess(bin *rpc.Bins) {
	bin.Throw(p.account, p.agent)
	if p.mem != nil {
		p.mem.Close()
		p.maps.Close()
		p.statm.Close()
		unix.Close(p.ref)
	}
	bin.Throw(p.account, int(p.uffd))
}

// ring is what is in the slots of the library's memory: pages on standby in the order in which
// they left, and slots that are free.
type ring struct {
	pages     []uint64 // by slot: the page's number, 0 none
	hasMemory []bool   // by slot: it has memory
	head      int      // the next slot to be filled
	tail      int      // the slot that was filled first
	used      int      // slots from tail to head, with memory or not
	present   int      // slots that have memory
}

func newRing(slots int) ring {
	return ring{pages: make([]uint64, slots), hasMemory: make([]bool, slots)}
}

func (r *ring) nextSlot(slot int) int {
	if slot++; slot == len(r.pages) {
		return 0
	}
	return slot
}

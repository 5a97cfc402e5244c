package pager

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// Config says how a Pager works.
type Config struct {
	// Local is how many bytes the processes may have in this host's memory, at least 1 MiB.
	Local int64
	// Store has the rest. The Pager does not close it.
	Store Store
	// Size is how many bytes of the store there are.
	Size int64
	// Socket is where processes find the Pager: the path of a Unix socket, which it makes.
	Socket string
	// Say is called with what users are to know, each thing once.
	Say func(text string)
	// Full is called once, when neither the share nor the store has room. It is called before
	// the Pager kills those of its processes that are paged.
	Full func()
}

// Smallest is the smallest share.
const Smallest = 1 << 20

// Counts are the numbers of pages that were moved, and why.
type Counts struct {
	Faults   uint64 // threads that waited for a page
	Filled   uint64 // pages that were new, so zeros
	Fetched  uint64 // pages that came from the store since they were missing
	Ahead    uint64 // pages that came with these
	Returned uint64 // pages that were wanted before they had left
	Writes   uint64 // writes to pages that were the same as in the store
	Moved    uint64 // pages that left
	Saved    uint64 // pages that were written to the store
	Stuck    uint64 // pages that could not leave
	Owned    uint64 // of these, pages that were shared since a fork and then made a process's own
	Most     uint64 // the most pages that were here at once
	Here     uint64 // pages here at the last look
	Adopted  uint64 // processes that are or were paged
}

// Pager keeps the memory of processes within a share.
type Pager struct {
	store    Store
	places   *places
	limit    int // pages
	batch    int // pages that leave at once
	standby  int // slots of a process
	say1     func(string)
	onFull   func()
	said     map[string]bool
	dead     bool // the store is lost
	fullOnce bool

	trash     rpc.Bins
	listener  int
	poll      int
	stop      int
	processes map[*process]bool
	sources   map[int]source // by descriptor
	buffer    []byte
	counts    Counts
	nextTick  time.Time
	// nextTraced is when it is looked for tracers next.
	nextTraced time.Time
	follow     follow

	mu     sync.Mutex
	ending bool   // +checklocks:mu
	told   Counts // +checklocks:mu
	alive  int    // +checklocks:mu
	ever   int    // +checklocks:mu
	closed bool   // +checklocks:mu
}

// source is what a descriptor belongs to.
type source struct {
	kind    sourceKind
	p       *process
	account caller.Account // of a stranger
}

type sourceKind uint8

const (
	ofListener sourceKind = iota
	ofStop
	ofStranger // connected, and has not said hello
	ofAgent
	ofUffd
)

// New makes a Pager. Its Run serves.
func New(c Config) (*Pager, error) {
	if c.Local < Smallest {
		return nil, fmt.Errorf("pager: a share of %d bytes: it takes %d at least", c.Local, int64(Smallest))
	}
	limit := int(c.Local / pageSize)
	g := &Pager{
		store: c.Store, places: newPlaces(c.Size), limit: limit,
		batch: min(max(limit/16, 16), largestWindow), say1: c.Say, onFull: c.Full, said: make(map[string]bool),
		processes: make(map[*process]bool), sources: make(map[int]source), buffer: make([]byte, (largestWindow+1)*pageSize),
		listener: -1, poll: -1, stop: -1,
	}
	if d, ok := c.Store.(Discarder); ok {
		g.places.freed = func(place uint32) { _ = d.Discard(placeOffset(place), pageSize) } // it is within
	}
	g.standby = min(max(limit/32, 2*g.batch), maxSlots)
	if err := g.openDescriptors(c.Socket); err != nil {
		g.closeAll()
		return nil, err
	}
	return g, nil
}

// maxSlots is how many slots the library's memory has.
const maxSlots = 1 << 14

// openDescriptors makes the descriptors that a Pager has by itself.
func (g *Pager) openDescriptors(path string) (err error) {
	if g.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("pager: epoll: %w", err)
	}
	if g.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("pager: eventfd: %w", err)
	}
	g.listener, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(g.listener, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = os.Chmod(path, 0o666) // the folder says who may
	}
	if err == nil {
		err = unix.Listen(g.listener, 64)
	}
	if err == nil {
		err = errors.Join(g.watchDescriptor(g.stop, source{kind: ofStop}), g.watchDescriptor(g.listener, source{kind: ofListener}))
	}
	if err != nil {
		return fmt.Errorf("pager: socket %s: %w", path, err)
	}
	return nil
}

func (g *Pager) watchDescriptor(fd int, s source) error {
	g.sources[fd] = s
	events := uint32(unix.EPOLLIN)
	if s.kind == ofUffd {
		events |= unix.EPOLLET // its messages may have to wait
	}
	return unix.EpollCtl(g.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (g *Pager) unwatchDescriptor(fd int) {
	delete(g.sources, fd)
	_ = unix.EpollCtl(g.poll, unix.EPOLL_CTL_DEL, fd, nil)
}

// Finish has Run return when no process is left.
func (g *Pager) Finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = true
	if !g.closed {
		_, _ = unix.Write(g.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// Counts returns what has happened so far.
func (g *Pager) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told
}

// Processes returns how many processes are served, and how many were, ever.
func (g *Pager) Processes() (now, ever int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive, g.ever
}

// publishCounts lets others see the counts. It reports whether to go on.
func (g *Pager) publishCounts() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told, g.alive = g.counts, len(g.processes)
	g.ever = max(g.ever, int(g.counts.Adopted))
	return !g.ending || len(g.processes) > 0
}

// Run serves until Finish was called and all processes have ended. Then the Pager is closed.
func (g *Pager) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer g.closeAll()
	g.follow.beginFollow()
	defer g.follow.endFollow()
	events := make([]unix.EpollEvent, 64)
	for g.publishCounts() {
		if err := g.handleEvents(events); err != nil {
			return err
		}
	}
	return nil
}

// handleEvents waits for events, or until it is time to look at the processes, and handles what
// there is. events has room for some.
func (g *Pager) handleEvents(events []unix.EpollEvent) error {
	n, err := g.waitForEvents(events, g.nextTimeout())
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("pager: epoll: %w", err)
	}
	for i := range max(n, 0) {
		if s, ok := g.sources[int(events[i].Fd)]; ok {
			g.serveDescriptor(int(events[i].Fd), s)
		}
	}
	g.retryFaults()
	if now := time.Now(); !now.Before(g.nextTick) {
		g.lookAtProcesses(now)
	}
	g.balancePages()
	return nil
}

// serveDescriptor does what a descriptor asks for.
func (g *Pager) serveDescriptor(fd int, s source) {
	switch s.kind {
	case ofListener:
		g.acceptConnection()
	case ofStop:
		var b [8]byte
		_, _ = unix.Read(g.stop, b[:])
	case ofStranger:
		g.meetProcess(fd, s.account)
	case ofAgent:
		g.readReply(s.p)
	case ofUffd:
		g.readMessages(s.p)
	}
}

// closeAll closes everything.
func (g *Pager) closeAll() {
	for p := range g.processes {
		g.dropProcess(p)
	}
	for fd, s := range g.sources {
		if s.kind == ofStranger {
			g.trash.Throw(s.account, fd)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, fd := range []int{g.listener, g.stop, g.poll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// sayOnce tells users something, once.
func (g *Pager) sayOnce(key, format string, args ...any) {
	if !g.said[key] {
		g.said[key] = true
		g.say1(fmt.Sprintf(format, args...))
	}
}

// killAll kills all processes, since there is no room anywhere, and says so once. Those that
// came first go first: a shell does not go on to its next command when its child has been
// killed.
func (g *Pager) killAll() {
	if !g.fullOnce {
		g.fullOnce = true
		g.onFull()
	}
	for _, p := range slices.SortedFunc(maps.Keys(g.processes), func(a, b *process) int { return cmp.Compare(a.number, b.number) }) {
		p.kill()
	}
}

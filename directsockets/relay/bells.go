package relay

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/link"
)

// bells are the doorbells of the programs, as one descriptor to wait for.
//
// Concurrency: all methods may be called from many goroutines; wait by one at a time.
type bells struct {
	set   int // an epoll set
	event int // an eventfd in it that ends a wait
	got   [64]unix.EpollEvent

	mu   sync.Mutex
	rung []uint32 // +checklocks:mu
	most int      // +checklocks:mu
}

// maxRung is how many rings are noted before several of one doorbell count as one. None is lost:
// the next one may never come.
const maxRung = 1 << 16

func (b *bells) openBells() (err error) {
	b.set, b.event = -1, -1
	if b.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		b.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(b.set, unix.EPOLL_CTL_ADD, b.event, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		b.close()
	}
	return err
}

func (b *bells) close() {
	for _, fd := range []*int{&b.event, &b.set} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// watchBell waits for the doorbell of a connection from now on. Each ring is reported once.
func (b *bells) watchBell(id uint32, fd int) error {
	return unix.EpollCtl(b.set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(id), Pad: 1})
}

// unwatchBell ends watchBell. Without it a doorbell would ring on while its program keeps a
// descriptor of it.
func (b *bells) unwatchBell(fd int) { _ = unix.EpollCtl(b.set, unix.EPOLL_CTL_DEL, fd, nil) } // or it was not added

// awaitRings notes which doorbells ring, within a time (-1: for ever), and returns how many.
func (b *bells) awaitRings(ms int) (n int, err error) {
	for {
		n, err = unix.EpollWait(b.set, b.got[:], ms)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		break
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ev := range b.got[:max(n, 0)] {
		if ev.Pad == 0 {
			var count [8]byte
			_, _ = unix.Read(b.event, count[:]) // it is not 0
		} else {
			b.noteLocked(uint32(ev.Fd))
		}
	}
	return n, err
}

// noteLocked notes that a doorbell has rung. The caller holds mu.
//
// +checklocks:b.mu
func (b *bells) noteLocked(id uint32) {
	if len(b.rung) >= max(b.most, maxRung) { // a program that rings all the time
		slices.Sort(b.rung)
		b.rung = slices.Compact(b.rung)
		b.most = 2 * len(b.rung)
	}
	b.rung = append(b.rung, id)
}

// endWait ends a wait. Nothing runs in the caller's goroutine, which may hold locks.
func (b *bells) endWait() { _, _ = unix.Write(b.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// takeRung returns the connections whose doorbells have rung.
func (b *bells) takeRung() []uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rung
	b.rung = nil
	return r
}

// doze is how long the driver waits, with no doorbell armed, before it looks for more of a
// stream of messages that nothing answers: each message that wakes a node costs its program
// more than to send a hundred.
const doze = 200 * time.Microsecond

// served is what a driver sees of the Engine.
type served struct {
	*Engine
	over atomic.Bool
	left chan struct{}
}

// attendBells has a driver or a goroutine wait for the doorbells, until the function that it
// returns is called.
func (e *Engine) attendBells() (stop func()) {
	s := &served{Engine: e, left: make(chan struct{})}
	if d := e.cfg.Driver; d != nil && d.Take(s) {
		return func() {
			s.over.Store(true)
			d.Wake()
			<-s.left
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !s.over.Load() {
			if n, err := e.bells.awaitRings(-1); err != nil || s.over.Load() {
				return
			} else if n > 0 {
				e.pumpIRQ.Interrupt()
			}
		}
	}()
	return func() {
		s.over.Store(true)
		e.bells.endWait()
		<-done
	}
}

// Fd implements link.Served.
func (s *served) Fd() int { return s.bells.set }

// Serve implements link.Served.
func (s *served) Serve(rung bool) (moved int, ok bool) {
	if s.over.Load() {
		return 0, false
	}
	s.waiting.Store(false)
	n := 0
	if rung {
		var err error
		if n, err = s.bells.awaitRings(0); err != nil {
			return 0, false
		}
	}
	if n > 0 || s.watched.Load() {
		s.pumpIRQ.Interrupt()
	}
	return n + int(s.moved.Swap(0)), true
}

// Arm implements link.Served. The goroutine that polls arms the doorbells: this one, unless another
// one polls already.
func (s *served) Arm() time.Duration {
	if s.over.Load() {
		return 0
	}
	if s.flows.Load() && s.flows.Swap(false) { // more will come: let it gather
		return doze
	}
	s.waiting.Store(true)
	if s.watched.Load() {
		s.pumpIRQ.Interrupt()
	}
	if s.moved.Load() > 0 {
		return 0
	}
	return link.Forever
}

// Doze implements link.Served.
func (s *served) Doze() {}

// Bind implements link.Served.
func (s *served) Bind(int) {}

// PeerCPU implements link.Served.
func (s *served) PeerCPU() int { return -1 }

// Leave implements link.Served.
func (s *served) Leave() { close(s.left) }

var _ link.Served = (*served)(nil)

package txloop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"exnet/exteth"
	"exnet/fabric/link"
	"exnet/internal/counter"
	"exnet/internal/ctxend"
	"exnet/node/tun"

	"golang.org/x/sys/unix"
)

// Interface is the network interface that the loop sends through.
type Interface interface {
	// Alloc returns a buffer, or nil when there is none; then the interface
	// wakes the loop later.
	Alloc() *exteth.TxBuffer
	Free(*exteth.TxBuffer)
	// Stopped reports whether the interface takes no packets for now.
	Stopped() bool
	// Flush lets the receivers know of the packets sent.
	Flush()
}

// Stack is the IP layer of a node.
type Stack interface {
	// FromHost takes a buffer that holds an IP packet, or Port.Header and a packet.
	FromHost(*exteth.TxBuffer)
}

// Device is a TUN device.
type Device interface {
	Fd() int
	// Read reads one packet with its virtio-net header, or returns
	// tun.ErrAgain.
	Read([]byte) (int, error)
}

// Port is one device with the stack and interface of its node.
type Port struct {
	Device    Device
	Interface Interface
	Stack     Stack
	Senders   Senders // nil: unknown
	Idle      func()  // called before a rest, for what can wait; nil: nothing
	// Header is the length of the link layer's header before each packet: 0, or
	// tun.EthernetHeaderLen. The offsets of the offload metadata count from it.
	Header int
}

// Config configures a Loop. The zero value of a field means its default.
type Config struct {
	Ports []Port
	// Burst is how many packets are read from one device before the next has
	// its turn, unless they come to 128 KB before. Default 16.
	Burst int
	// Nap is how long the thread sleeps before it waits, after much traffic.
	// Default 80 µs; negative: not at all.
	Nap time.Duration
}

const (
	// burstBytes ends a burst that moves much: a receiver is to find the frames
	// in the cache. With bursts of 64 KB, 128 KB, 256 KB and 1 MB, exn0 moved
	// 31, 33, 30 and 28 Gbit/s.
	burstBytes   = 2 * 65536
	defaultBurst = 16
	// defaultNap leaves the CPU to the programs until some packets are there: with
	// 20, 40, 80 and 160 µs, two daemons on two CPUs moved 17, 26, 33 and 31 Gbit/s.
	defaultNap = 80 * time.Microsecond
	// maxNaps is how often it naps in a row without finding a packet.
	maxNaps = 4
	// linger is how long the thread waits for a packet before it gives up its
	// place in the Go scheduler and rests. That is longer than the kernel's tick (CONFIG_HZ is 250
	// or more in distributions): the timer of the wait is then not the next to expire beside a
	// program that keeps the CPU, and the clock is not set for it, which takes a virtual machine
	// 10 µs each time.
	linger = 5 * time.Millisecond
	// monitored is the wait after a rest at which the runtime's monitor is woken. A ping
	// takes four.
	monitored = 16
	// smallBytes is how much a request and its answer have.
	smallBytes = 4096
)

// Stats are the counters of a Loop.
type Stats struct {
	Packets  uint64 // packets read
	Bytes    uint64 // bytes of these
	Received uint64 // bytes that links brought
	Bad      uint64 // packets whose virtio-net header could not be read
	Waits    uint64 // times that the thread waited for a packet
	Rests    uint64 // waits in which nothing came for long
	Naps     uint64 // times that it slept for a moment instead
	Spins    uint64 // times that it looked again for a moment instead
	Caught   uint64 // of these, those that found something
	Glanced  uint64 // times that it looked without yielding, and found something
	Moves    uint64 // times that it moved to the CPU of the programs that send
	Stops    uint64 // times that it left a device unread because its interface was stopped
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct {
	Packets, Bytes, Received, Bad, Waits, Rests, Naps, Spins, Caught, Glanced, Moves, Stops atomic.Uint64
}

// Loop reads TUN devices.
//
// Concurrency: Run is called once. The other methods may be called from any
// goroutine.
type Loop struct {
	cfg    Config
	event  int         // eventfd
	woken  atomic.Bool // Wake was called since the loop looked
	waits  atomic.Bool // it waits, or is about to
	stats  counters
	begun  time.Time
	zero   time.Duration // CLOCK_MONOTONIC when it began
	waited waited
	// For tests; nil: package time, since begun, and sched_yield(2).
	clock    func() time.Duration
	yielding func()

	// What follows belongs to Run.
	ports     []port
	place     follower
	home      home
	links     []served
	poll      []unix.PollFd
	rest      rest
	turn      *port // whose packet came last; nil: a link's
	round     int   // waits since the last rest
	locked    bool  // the goroutine has a thread of its own
	load      load
	spin      spin
	glance    glance
	sourceCPU int  // CPU that sent what was read last; -1: unknown, or several
	threadCPU int  // CPU of the thread since it last waited; -1: not asked
	lowered   bool // the thread has the programs' priority

	mu    sync.Mutex
	taken []link.Served // guarded by mu; not among links yet
	ended bool          // guarded by mu
}

type port struct {
	Port
	spare *exteth.TxBuffer // for the next packet
	empty bool             // poll(2) has found no packet; not read this time
	held  bool             // not read until the next Wake: stopped, or no buffer
	queue queue
}

// New makes a Loop. Close closes its descriptor.
func New(cfg Config) (*Loop, error) {
	if cfg.Burst == 0 {
		cfg.Burst = defaultBurst
	}
	if cfg.Nap == 0 {
		cfg.Nap = defaultNap
	}
	if cfg.Burst < 0 {
		return nil, fmt.Errorf("txloop: burst of %d packets; at least 1 is needed", cfg.Burst)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("txloop: eventfd: %w", err)
	}
	l := &Loop{cfg: cfg, event: fd, begun: time.Now(), zero: monotonicTime(), threadCPU: -1}
	if err := l.rest.createPoller(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	for _, p := range cfg.Ports {
		l.ports = append(l.ports, port{Port: p})
	}
	return l, nil
}

// Wake makes the loop check the stopped interfaces and all links again. The loop
// records that it waits before it checks whether it was woken, so at least one of the
// two sees the other.
func (l *Loop) Wake() {
	l.woken.Store(true)
	if !l.waits.Load() {
		return
	}
	one := [8]byte{1}
	unix.Write(l.event, one[:]) // fails only if the counter is full: then it wakes anyway
}

// sinceStart is how long the loop has been there.
func (l *Loop) sinceStart() time.Duration {
	if l.clock != nil {
		return l.clock()
	}
	return time.Since(l.begun)
}

// Stats returns the counters.
func (l *Loop) Stats() (s Stats) {
	counter.Load(&l.stats, &s)
	return s
}

// Close closes the descriptors. Run must have returned, and Wake must not be called any
// more.
func (l *Loop) Close() error { return errors.Join(unix.Close(l.event), l.rest.close()) }

// Run reads packets until ctx is cancelled, then returns nil. It returns an
// error when a device is gone.
func (l *Loop) Run(ctx context.Context) error {
	defer ctxend.Do(ctx, l.Wake)() // nothing is written to the descriptor after Close
	done := make(chan error)
	go func() { done <- l.carryPackets(ctx) }() // if it ends with a thread of its own, that ends, too
	return <-done
}

// lockThread takes a thread for the goroutine alone, for naps to be short and for a CPU to be
// bound to.
func (l *Loop) lockThread() {
	if !l.locked {
		l.unbindHome()
		l.locked = true
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0)
	}
}

// unlockThread gives the thread back as it was.
func (l *Loop) unlockThread() {
	if l.locked {
		l.locked = false
		l.raisePriority()
		l.place.unbindThread(l.links)
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0: the default
		runtime.UnlockOSThread()
	}
}

func (l *Loop) carryPackets(ctx context.Context) error {
	defer l.releaseHeld()
	defer l.disownLinks()
	l.place.findHomes(l.ports, l.lockThread)
	l.home.reset()
	defer l.unbindHome()
	naps, busy := 0, 0
	for {
		if l.woken.Load() {
			l.checkHeld()
			l.adoptLinks()
			if ctx.Err() != nil { // cancelling wakes
				return nil
			}
		}
		n := 0
		for i := range l.ports {
			got, err := l.readBurst(&l.ports[i])
			if err != nil {
				return err
			}
			n += got
		}
		received := l.serveLinks()
		l.place.received += received
		if busy++; busy == unwatched {
			busy = 0
			l.pollWork()
		}
		if n+received > 0 {
			if l.spin.noteFound() {
				l.stats.Caught.Add(1)
			}
			l.noteGlance(n, received)
			l.load.addBytes(n, received)
			l.home.looks = 0
			naps = 0
			if l.isAnswering(n) {
				l.handOver()
			}
			if l.isBrief(n+received) && !l.hasPending() {
				if err := l.waitForWork(); err != nil {
					return err
				}
			}
			continue
		}
		if naps < maxNaps && l.cfg.Nap > 0 && l.load.isHeavy() {
			naps++
			l.nap()
			continue
		}
		if naps == 0 && (l.mayGlance() || l.handOver() || l.spinOn()) {
			continue
		}
		l.load.noteWait()
		naps, busy = 0, 0
		if err := l.waitForWork(); err != nil {
			return err
		}
	}
}

// readBurst reads a burst of packets from one device and returns their bytes.
func (l *Loop) readBurst(p *port) (bytes int, err error) {
	if p.held || p.empty || !p.mayRead() {
		p.empty = false
		return 0, nil
	}
	packets, burst := 0, l.cfg.Burst
	if l.home.fresh || l.isBrief(0) {
		burst = 1 // the peer is woken at once, and a second read would find nothing
	}
	for packets < burst && bytes < burstBytes && (packets == 0 || p.mayRead()) {
		if p.Interface.Stopped() {
			l.holdDevice(p)
			break
		}
		if p.spare == nil {
			if p.spare = p.Interface.Alloc(); p.spare == nil {
				l.holdDevice(p)
				break
			}
		}
		b := p.spare
		mem := b.Mem()[exteth.Headroom-p.Header-tun.VnetHdrLen:]
		n, rerr := p.Device.Read(mem)
		if rerr != nil {
			if !errors.Is(rerr, tun.ErrAgain) {
				err = rerr
			}
			if p.queue.noteNothing() {
				p.Senders.Take() // of what was dropped
			}
			break
		}
		p.noteRead()
		packets++
		bytes += n
		if n < tun.VnetHdrLen+p.Header || b.Offload.ParseHost(mem) != nil {
			l.stats.Bad.Add(1)
			continue
		}
		p.spare = nil
		b.SetPacket(n - tun.VnetHdrLen - p.Header)
		p.Stack.FromHost(b)
		if l.turn != p && l.answersFirst() {
			break // a request is followed by its answer, from another device
		}
	}
	if packets > 0 {
		l.turn = p
		l.home.noteSender(p.Senders)
		l.countWait(p.Senders)
		p.Interface.Flush()
		if l.home.thread == 0 && l.place.noteBurst(bytes, l.links) {
			l.stats.Moves.Add(1)
		}
		l.stats.Packets.Add(uint64(packets))
		l.stats.Bytes.Add(uint64(bytes))
	}
	return bytes, err
}

func (l *Loop) holdDevice(p *port) {
	p.held = true
	l.stats.Stops.Add(1)
}

// checkHeld makes the loop check the held devices again.
func (l *Loop) checkHeld() {
	l.woken.Store(false)
	for i := range l.ports {
		l.ports[i].held = false
	}
}

func (l *Loop) releaseHeld() {
	for i := range l.ports {
		if b := l.ports[i].spare; b != nil {
			l.ports[i].Interface.Free(b)
			l.ports[i].spare = nil
		}
	}
}

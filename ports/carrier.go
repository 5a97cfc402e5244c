package ports

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
)

// carrier sends what the VELO ports of this host have written to ports of other hosts. A driver
// serves the carrier beside the links: so a message wakes one thread only, and that thread sends
// it. Without a driver the carrier has a goroutine of its own.
//
//	port ─▶ flow, and bell if it is armed ─▶ Serve ─▶ Far.TrySend
//
// Concurrency: wake and join may be called from many goroutines. The rest is the driver's.
type carrier struct {
	server  *Server
	set     int // an epoll set with the bells
	event   int // an eventfd in it
	woken   atomic.Bool
	waits   atomic.Bool // the driver waits, or is about to
	parting atomic.Bool // a pair has ended
	ended   atomic.Bool // the server is closed

	mu      sync.Mutex
	joining []*farPair // +checklocks:mu
	// closed: the descriptors are closed.
	closed bool // +checklocks:mu

	// The driver's.
	next   int32              // the last key of pairs
	pairs  map[int32]*farPair // all pairs, by carriage.id
	active []*farPair         // the pairs that are not in lookRests
	got    [32]unix.EpollEvent
	buf    [wire.SlotSize + link.VELOPayload]byte
}

// carriage is the carrier's record of a pair. Only the driver uses it.
type carriage struct {
	id        int32
	look      look
	bell      bool // the pair's bell is in the epoll set; it never changes
	slotsLeft int  // how many slots may still be sent after a port has ended
	idle      int  // how many looks in a row found nothing
}

// look is when the carrier looks at a pair next.
//
//	often ◀─▶ pausing      it has something to send, which the node has no credit for
//	often  ─▶ armed        the flow is empty
//	armed  ─▶ often        there was a slot, or the bell has rung
//	armed  ─▶ rests        the flow has been empty for long
//	rests  ─▶ often        the bell has rung, or a pair has ended
type look uint8

const (
	lookOften   look = iota // the port rings no bell
	lookPausing             // the port rings no bell; the driver looks again after creditPause
	lookArmed               // the port rings the bell with the next slot; the driver still looks
	lookRests               // the port rings the bell with the next slot; the driver looks only then
)

const (
	// burst is how many messages of a pair are sent before others have their turn.
	burst = 64
	// After so many looks that find nothing, a pair rests: idleArmed if its bell is armed,
	// idleLooks if it is not.
	idleArmed, idleLooks = 16, 4096
	// creditPause is how long the driver waits for credit of a node.
	creditPause = 100 * time.Microsecond
)

// carryLocked hands a pair to the carrier. It makes the carrier on first use. It returns false
// if the pair cannot be served.
//
// +checklocks:s.mu
func (s *Server) carryLocked(p *farPair) bool {
	if s.carrier == nil && !s.hub.Ended() {
		c := &carrier{server: s, set: -1, event: -1, pairs: make(map[int32]*farPair)}
		if c.startDriver() != nil {
			return false
		}
		s.carrier = c
		if s.cfg.Driver == nil || !s.cfg.Driver.Take(carries{c}) {
			go c.alone()
		}
	}
	if s.carrier == nil {
		return false
	}
	s.streams++
	p.stream = s.streams
	if !s.carrier.addPair(p) {
		return false
	}
	p.node.streams[p.stream] = p
	return true
}

func (c *carrier) startDriver() (err error) {
	if c.set, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		c.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(c.set, unix.EPOLL_CTL_ADD, c.event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1})
	}
	if err != nil {
		closeAll(c.set, c.event)
	}
	return err
}

// addPair takes a pair. It returns false if the carrier has ended.
func (c *carrier) addPair(p *farPair) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.joining = append(c.joining, p)
	c.wakeLocked()
	return true
}

// wakeDriver has the driver look at all pairs.
func (c *carrier) wakeDriver() {
	if c.woken.Load() && !c.waits.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wakeLocked()
	}
}

// +checklocks:c.mu
func (c *carrier) wakeLocked() {
	c.woken.Store(true)
	if c.waits.Load() && c.waits.Swap(false) {
		_, _ = unix.Write(c.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // full: it is awake anyway
	}
}

// pairEnds is called when a pair has ended.
func (c *carrier) pairEnds() {
	c.parting.Store(true)
	c.wakeDriver()
}

// stopDriver has the driver leave the carrier.
func (c *carrier) stopDriver() {
	c.ended.Store(true)
	c.wakeDriver()
}

// adoptPairs begins to serve the pairs that have joined.
func (c *carrier) adoptPairs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.joining {
		c.next++
		p.carry = carriage{id: c.next, look: lookRests, slotsLeft: p.in.slots}
		c.pairs[c.next] = p
		// If it fails for want of memory, the pair is looked at all the time.
		p.carry.bell = unix.EpollCtl(c.set, unix.EPOLL_CTL_ADD, p.in.pipe, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.next}) == nil
		c.activate(p)
	}
	c.joining = nil
}

// activate moves a pair to lookOften. The port may have disarmed the pair's bell.
func (c *carrier) activate(p *farPair) {
	if p.carry.look == lookRests {
		p.carry.idle = 0
		c.active = append(c.active, p)
	}
	p.carry.look = lookOften
}

// rung activates the pairs whose bells ring.
func (c *carrier) rung() {
	n, _ := unix.EpollWait(c.set, c.got[:], 0) // what it misses by EINTR rings on
	for _, ev := range c.got[:max(n, 0)] {
		var b [512]byte
		if ev.Fd < 0 {
			_, _ = unix.Read(c.event, b[:8])
			continue
		}
		if p := c.pairs[ev.Fd]; p != nil {
			_, _ = unix.Read(p.in.pipe, b[:]) // it is not empty, or a process has read it
			c.activate(p)                     // the port has disarmed it, perhaps for a slot that was taken before it was armed
		}
	}
}

// carries is the carrier as a driver sees it.
type carries struct{ *carrier }

// Fd implements link.Served.
func (c carries) Fd() int { return c.set }

// Serve implements link.Served.
func (c carries) Serve(rung bool) (moved int, ok bool) {
	c.waits.Store(false)
	if c.ended.Load() {
		return 0, false
	}
	if rung {
		c.rung()
	}
	if c.woken.Load() && c.woken.Swap(false) {
		c.adoptPairs()
		if c.parting.Swap(false) { // a pair that has ended rings no bell
			for _, p := range c.pairs {
				c.activate(p)
			}
		}
	}
	kept := c.active[:0]
	for _, p := range c.active {
		n, over := c.carryFrom(p)
		if moved += n; n > 0 {
			c.server.cfg.Far.Flush(p.node.id)
		}
		if over {
			delete(c.pairs, p.carry.id)
			continue
		}
		k := &p.carry
		if k.idle++; n > 0 {
			k.idle = 0
		}
		if k.bell && !closed(p.ended) && !k.blocked(p) && (k.look == lookArmed && k.idle > idleArmed || k.idle > idleLooks && c.empty(p)) {
			k.look = lookRests
			continue
		}
		kept = append(kept, p)
	}
	clear(c.active[len(kept):])
	c.active = kept
	return moved, true
}

// closed returns whether c is closed. Nobody sends on c.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// blocked returns whether the messages in the pair's flow cannot be sent now, for want of
// credit.
func (k *carriage) blocked(p *farPair) bool {
	return k.look == lookPausing || p.sent.Load()-p.taken.Load() >= farSlots
}

// empty arms the bell of a pair, and returns whether there is nothing to send.
func (c *carrier) empty(p *farPair) bool {
	if p.carry.look != lookArmed {
		p.in.armBell(true)
		p.carry.look = lookArmed
	}
	return !p.in.hasSlot()
}

// carryFrom sends on what a port has written, and returns how many bytes, and whether the pair
// has ended.
func (c *carrier) carryFrom(p *farPair) (bytes int, over bool) {
	k := &p.carry
	ending := closed(p.ended)
	if closed(p.cut) {
		return 0, c.finishPair(p)
	}
	if k.look == lookPausing {
		k.look = lookOften
	}
	message := c.buf[wire.SlotSize:]
	for range burst {
		if ending && k.slotsLeft == 0 {
			return bytes, c.finishPair(p)
		}
		if p.sent.Load()-p.taken.Load() >= farSlots {
			return bytes, false
		}
		word, ok := p.in.copyOldest(message)
		if !ok {
			if ending {
				return bytes, c.finishPair(p)
			}
			return bytes, false
		}
		if k.look == lookArmed {
			p.in.armBell(false)
			k.look = lookOften
		}
		n := min(int(word&(1<<7-1)), len(message))
		if n > 0 { // or the slot was given up
			wire.Slot{From: p.pair.ours, To: p.pair.theirs, Stream: p.stream, Word: uint32(word & wire.SlotWord)}.Put((*[wire.SlotSize]byte)(c.buf[:]))
			// It is counted before it can be answered.
			p.sent.Add(1)
			if err := p.node.tryBytes(c.buf[:wire.SlotSize+n]); err != nil {
				p.sent.Add(^uint64(0))
				if errors.Is(err, fabric.ErrAgain) {
					k.look = lookPausing
					return bytes, false
				}
				return bytes, c.finishPair(p) // the node is down
			}
		}
		p.in.releaseOldest()
		if ending {
			k.slotsLeft--
		}
		bytes += wire.SlotSize + n
	}
	return bytes, false
}

// finishPair stops serving a pair. All that its port has written was sent, or is lost.
func (c *carrier) finishPair(p *farPair) bool {
	if p.carry.bell {
		_ = unix.EpollCtl(c.set, unix.EPOLL_CTL_DEL, p.in.pipe, nil)
	}
	p.hasSent()
	return true
}

// Arm implements link.Served.
func (c carries) Arm() time.Duration {
	c.waits.Store(true)
	if c.woken.Load() || c.ended.Load() {
		return 0
	}
	wait := link.Forever
	for _, p := range c.active {
		switch k := &p.carry; {
		case k.look == lookPausing:
			wait = creditPause
		case k.blocked(p):
		case closed(p.ended) || !c.empty(p):
			return 0
		case !k.bell:
			wait = creditPause
		}
	}
	return wait
}

// Doze implements link.Served.
func (c carries) Doze() {}

// Bind implements link.Served.
func (c carries) Bind(int) {}

// PeerCPU implements link.Served.
func (c carries) PeerCPU() int { return -1 }

// Leave implements link.Served: all pairs end.
func (c carries) Leave() {
	c.mu.Lock()
	c.closed = true
	joined := c.joining
	c.joining = nil
	closeAll(c.set, c.event)
	c.mu.Unlock()
	for _, p := range slices.AppendSeq(joined, maps.Values(c.pairs)) {
		p.hasSent()
	}
	clear(c.pairs)
	c.active = nil
}

// alone serves the carrier without a driver.
func (c *carrier) alone() {
	s := carries{c}
	defer s.Leave()
	fds := []unix.PollFd{{Fd: int32(c.set), Events: unix.POLLIN}}
	for rung := false; ; {
		moved, ok := s.Serve(rung)
		if !ok {
			return
		}
		if rung = false; moved > 0 {
			continue
		}
		limit := s.Arm()
		if limit == 0 {
			continue
		}
		millis := -1
		if limit > 0 {
			millis = int(max(limit.Milliseconds(), 1))
		}
		_, err := unix.Poll(fds, millis)
		rung = err == nil
	}
}

var _ link.Served = carries{}

package udp

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/internal/shm"
)

const (
	// announceAfter is how many datagrams a program has received before flows to it are worth it.
	announceAfter = 2
	// shadowEvery is every how many records the kernel's socket is looked at.
	shadowEvery = 64
	// youngUntil is how many datagrams of a new flow make the receiver look whether more are there:
	// the sender does not know yet how many were lost.
	youngUntil = 64
	// busyTime is how long a receiver waits for senders that are publishing, all flows together;
	// busyShare is the part of its time that this may take, and busyMost what it saves of that.
	busyTime  = 10 * time.Millisecond
	busyShare = 16
	busyMost  = 50 * time.Millisecond
	// mostLate is how often a sender may publish after that while unread data of its remains.
	mostLate = 3
	// checkTime is how often the kernel is asked whether the other end of a flow still is who it
	// was, and whether flows are over.
	checkTime = 100 * time.Millisecond
)

// inbound is what a Socket has of the datagrams that come.
type inbound struct {
	s    *Socket
	port uint16

	received atomic.Uint32 // by the kernel, up to announceAfter
	none     atomic.Uint32 // the word of the page for which a CLAIM found nothing
	setup    setup         // how far it has come, before there is a flow
	some     atomic.Bool   // there are flows, or grants: for a quick look without mu
	waiting  atomic.Int32  // calls on the kernel's socket; changed under mu if there are flows

	mu     sync.Mutex
	flows  []*inflow // guarded by mu
	active []*inflow // guarded by mu; those that are looked at (inflow.on)
	dirty  []*inflow // guarded by mu; those that want to know that the kernel's queue is empty
	parked []*inflow // guarded by mu; armed, and looked at after the next call on the kernel's socket
	// noBells says that no flow is armed for a bell any more, and none takes records that wait for
	// datagrams by the kernel (AFTER). Once set it stays: a property of the socket, and no state of
	// a flow. Either several goroutines have received at the same time: one that sleeps does not
	// hear what woke another. Or another socket may take the address: the bell, or the datagram
	// that a record waits for, would reach that one.
	noBells bool // guarded by mu
	bySrc   map[netip.AddrPort]*inflow
	turn    int
	spin    time.Duration // guarded by mu; how long to look, at present
	// ended says that the socket has left: what is kept is all that comes. No state of a flow, as
	// there is none any more; and set-up, which has a mutex of its own, ends before that.
	ended bool
	// waking says that the kernel's socket has a deadline that is not the program's.
	waking  bool // guarded by mu
	checked int64

	kept []kept // guarded by mu; what was in the rings when the socket left
	// looked has one place: since Leave a goroutine has come back from the kernel's call, or
	// nothing is kept any more.
	looked chan struct{}

	credit   time.Duration // guarded by mu; how long to wait for senders that are publishing,
	credited int64         // and when that was
	byKernel uint64        // guarded by mu; datagrams, while there are flows
	gone     uint32        // guarded by mu; of the socket's drops, those that flows have counted as lost
}

func (in *inbound) init(s *Socket) {
	in.s, in.port, in.bySrc, in.spin = s, s.cfg.Local.Port(), make(map[netip.AddrPort]*inflow), s.cfg.Spin
	in.looked = make(chan struct{}, 1)
}

// Datagram is what Receive has received.
type Datagram struct {
	N    int // bytes in the buffer
	Len  int // of the datagram
	From netip.AddrPort
	To   netip.AddrPort
	datagram.Meta
}

// Receive receives a datagram through memory. ok false: call the kernel's socket, which may wait,
// and then Received, whatever it has returned.
func (s *Socket) Receive(b []byte) (d Datagram, ok bool) {
	if s.plain.Load() {
		return d, false
	}
	if !s.in.some.Load() {
		// Who sets some looks at waiting afterwards.
		if s.in.waiting.Add(1); !s.in.some.Load() {
			return d, false
		}
		s.in.waiting.Add(-1)
	}
	for {
		d, ok, again := s.in.receive(b)
		if !again {
			return d, ok
		}
		time.Sleep(earlyPause)
	}
}

// receive is Receive when there may be flows. again: call it again, after a moment.
func (in *inbound) receive(b []byte) (d Datagram, ok, again bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.install()
	if d, ok = in.fromKept(b); ok {
		return d, true, false
	}
	if !in.ended && !over(&in.s.readUntil) {
		if in.waiting.Load() > 0 {
			in.endBells()
		}
		if len(in.active) > 0 {
			if d, ok, again = in.fromFlows(b); ok || again {
				return d, ok, again
			}
		}
	}
	if d, ok = in.fromKept(b); ok { // of a flow that has ended meanwhile
		return d, true, false
	}
	if in.check() {
		return d, false, true
	}
	in.dry()
	in.waiting.Add(1)
	in.idle()
	return d, false, false
}

// idle has the next call not look here, if there are no flows, nothing is kept, and nothing was
// granted.
func (in *inbound) idle() {
	if len(in.flows) > 0 || len(in.kept) > 0 || in.ended {
		return
	}
	in.some.Store(false)
	if in.setup.holds() { // since a moment ago: who has granted it may have set some before
		in.some.Store(true)
	}
}

// fromFlows receives from those that are active. Neither ok nor again: they are armed, and there is
// nothing. The caller has mu, as for all that follows.
func (in *inbound) fromFlows(b []byte) (d Datagram, ok, again bool) {
	in.turn++
	due := in.turn%shadowEvery == 0 || in.early() != nil
	if due {
		var own *inflow
		if own, due = in.peek(); own != nil {
			due = !in.due(own) // its sender has sent that before
		}
		if due && in.waiting.Load() == 0 {
			return in.arm(nil, true)
		}
	}
	if !due {
		if d, ok = in.take(b); ok {
			return d, true, false
		}
		now := shm.Nanotime()
		due = in.readable()
		if f := in.early(); f != nil {
			for f != nil && in.lost(f, f.rx.Missing(), now, due) {
				in.giveUp(f)
				if d, ok = in.take(b); ok {
					return d, true, false
				}
				f = in.early()
			}
			if !due && f != nil {
				return d, false, true
			}
		} else if !due && in.look() {
			if d, ok = in.take(b); ok {
				return d, true, false
			}
		}
	}
	return in.arm(b, due)
}

// due reports whether a flow has a record that is due.
func (in *inbound) due(f *inflow) bool {
	if !f.looked() || !f.rx.Ready() {
		return false
	}
	_, there, err := f.rx.Next()
	return err != nil || there && f.rx.Due()
}

// endBells has no flow armed for a bell, from now on. What is in the rings is found by the next
// look.
func (in *inbound) endBells() {
	if in.noBells {
		return
	}
	in.noBells = true
	for _, f := range in.flows {
		f.rx.EndAfter()
		f.rx.Arm(true)
		switch f.phase {
		case inArmed:
			f.on(in, inRing)
		case inMemory:
			f.on(in, inArm)
		}
	}
	in.await(in.active)
}

// take takes the earliest record that is due.
func (in *inbound) take(b []byte) (d Datagram, ok bool) {
	for {
		var first *inflow
		var rec datagram.Record
		for _, f := range in.active {
			if !f.rx.Ready() {
				continue
			}
			r, there, err := f.rx.Next()
			if err != nil {
				in.drop(f, connstats.WhyBreach)
				first = nil
				rec.Len = -1
				break
			}
			if there && !f.rx.Due() {
				if f.early == 0 {
					f.early, f.earlyAt = shm.Nanotime(), in.byKernel
				}
				there = false
			}
			if there && (first == nil || int64(r.Stamp-rec.Stamp) < 0) {
				first, rec = f, r
			}
			if len(in.active) == 1 {
				break
			}
		}
		if rec.Len < 0 {
			continue
		}
		if first == nil {
			return d, false
		}
		d = in.pull(first, rec, b)
		if in.turn%16 == 0 {
			in.check()
		}
		return d, true
	}
}

// pull takes what Next has returned of f.
func (in *inbound) pull(f *inflow, rec datagram.Record, b []byte) (d Datagram) {
	info := f.rx.Info()
	d = Datagram{Len: rec.Len, From: info.From, To: info.To, Meta: rec.Meta}
	d.N = f.rx.CopyTo(b)
	f.rx.Consume()
	f.used, f.early = true, 0
	f.counted(rec.Len)
	in.s.tell(receivedDirect)
	return d
}

func (in *inbound) ready() bool {
	for _, f := range in.active {
		if f.rx.Ready() {
			return true
		}
	}
	return false
}

// look looks for a while, as that has paid before.
func (in *inbound) look() bool {
	for _, f := range in.active {
		f.rx.Idle()
	}
	limit := in.spin
	if limit <= 0 {
		return false
	}
	start := shm.Nanotime()
	for i := 1; ; i++ {
		for range 16 {
			if in.ready() {
				in.spin = min(in.s.cfg.Spin, 2*in.spin+2*time.Microsecond)
				return true
			}
			shm.Pause(1)
		}
		if time.Duration(shm.Nanotime()-start) >= limit || over(&in.s.readUntil) || in.s.left.Load() {
			break
		}
		if i%4 == 0 {
			runtime.Gosched()
		}
	}
	in.spin = max(in.spin/2, min(in.s.cfg.Spin, 2*time.Microsecond))
	return false
}

// mayWait is how long a receiver may wait for senders that are publishing, which may be so for as
// long as they like.
func (in *inbound) mayWait(now int64) time.Duration {
	in.credit = min(in.credit+time.Duration(now-in.credited)/busyShare, busyMost)
	in.credited = now
	return min(in.credit, busyTime)
}

// arm has all senders use the kernel, unless there is something by now, or b is nil. brief: the
// kernel has something, and they use their flows again after that.
func (in *inbound) arm(b []byte, brief bool) (d Datagram, ok, again bool) {
	for _, f := range in.active {
		f.rx.Arm(in.noBells || f.phase == inDraining)
		if f.phase == inMemory {
			f.on(in, inArm)
		}
	}
	in.await(in.active)
	if b != nil {
		d, ok = in.take(b)
	}
	// While others are in the kernel's call, one of them may have what the kernel has: then this
	// one would sleep there, and nobody take what is in memory.
	if again = !ok && (!brief || in.waiting.Load() > 0) && in.early() != nil; ok || again {
		for _, f := range in.active {
			if in.waiting.Load() == 0 && f.phase == inRung {
				f.wake(in)
			}
		}
		return d, ok, again
	}
	in.parked = in.parked[:0]
	for i := len(in.active) - 1; i >= 0; i-- {
		f := in.active[i]
		if brief { // what they hold comes after that
			in.parked = append(in.parked, f)
			continue
		}
		if f.on(in, inEmpty); f.phase == inEnded {
			in.forget(f, connstats.WhyNothing)
		}
	}
	return d, false, false
}

// wake has the sender of f use the segment. No goroutine sleeps in the kernel's call.
func (f *inflow) wake(in *inbound) {
	f.on(in, inWake)
	f.rx.Disarm()
}

// await waits until no sender of these flows publishes that may not have seen that it is armed.
func (in *inbound) await(flows []*inflow) {
	var start, last int64
	var most time.Duration
	var all [maxFlows]*inflow // a flow that ends leaves the list
	for _, f := range all[:copy(all[:], flows)] {
		for f.phase != inDraining && f.rx.Busy() {
			now := shm.Nanotime()
			if start == 0 {
				start = now
				most = in.mayWait(now)
			}
			if last = now; time.Duration(now-start) > most {
				if f.late < mostLate && f.rx.Ready() {
					f.late++ // what it had published before is taken
				} else {
					in.keepOf(f)
					in.drop(f, connstats.WhyBreach)
				}
				break
			}
			if now-start > int64(20*time.Microsecond) {
				time.Sleep(100 * time.Microsecond)
			} else {
				runtime.Gosched()
			}
		}
	}
	in.credit = max(in.credit-time.Duration(last-start), 0)
}

// dry tells senders that nothing of theirs is in the queue of the kernel's socket. Another
// goroutine in the kernel's call may have taken a datagram from there, and not have counted it:
// then its sender would take that for lost.
func (in *inbound) dry() {
	if len(in.dirty) == 0 || in.waiting.Load() > 0 {
		return
	}
	var counts [maxFlows]uint64
	for i, f := range in.dirty {
		counts[i] = f.rx.Kernel()
	}
	if in.readable() {
		return
	}
	for i, f := range in.dirty {
		f.rx.Dry(counts[i])
		f.dirty = false
	}
	clear(in.dirty)
	in.dirty = in.dirty[:0]
}

// Received says that a call of the kernel's socket, before which Receive has found nothing, has
// received a datagram from an address, or failed: the zero AddrPort. again: Leave has woken it, so
// the error is not the program's; call Receive again.
func (s *Socket) Received(from netip.AddrPort, err error) (again bool) {
	if !s.plain.Load() { // else nobody counts any more
		s.received(from)
	}
	return err != nil && s.woken.Load() && errors.Is(err, os.ErrDeadlineExceeded) && !over(&s.readUntil)
}

func (s *Socket) received(from netip.AddrPort) {
	in := &s.in
	if from.IsValid() {
		if n := in.received.Load(); n < announceAfter {
			if in.received.Add(1) == announceAfter {
				s.announce()
			}
		} else if !s.left.Load() {
			in.claim()
		}
	}
	if in.some.Load() {
		in.receivedFrom(plainAddr(from))
	} else {
		in.waiting.Add(-1)
	}
}

// count counts a datagram that came by the kernel.
func (in *inbound) count(from netip.AddrPort) {
	in.byKernel++
	in.keptAfter(from)
	f := in.bySrc[from]
	if f == nil {
		return
	}
	f.rx.Took(1)
	in.s.tell(receivedShadow)
	if !f.dirty {
		f.dirty = true
		in.dirty = append(in.dirty, f)
	}
	in.parked = append(in.parked, f)
	if f.young++; f.young <= youngUntil {
		in.dry() // a program that sends and receives in turn never waits
	}
}

func (in *inbound) receivedFrom(from netip.AddrPort) {
	in.mu.Lock()
	defer in.mu.Unlock()
	waiting := in.waiting.Add(-1)
	if in.ended {
		in.tellLooked()
	}
	in.install()
	in.count(from)
	for _, f := range in.parked {
		switch idle := f.phase == inArmed || f.phase == inRung; {
		case !idle || in.ended:
		case waiting == 0:
			f.wake(in)
		case f.phase == inArmed && f.rx.Ready():
			f.on(in, inRing)
		}
	}
	clear(in.parked)
	in.parked = in.parked[:0]
}

package udp

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

const (
	// announceAfter is how many datagrams a program has received before flows to it are worth
	// it.
	announceAfter = 2
	// shadowEvery is every how many receives the kernel's socket is looked at, and checkEvery
	// every how many it may be time for checkSenders.
	shadowEvery = 64
	checkEvery  = 16
	// youngUntil is how many datagrams of a new flow make the receiver look whether more are
	// there: the sender does not know yet how many were lost.
	youngUntil = 64
	// busyTime is how long a receiver waits for senders that are publishing, all flows together;
	// busyShare is the part of its time that this may take, and busyMost what it saves of that.
	busyTime  = 10 * time.Millisecond
	busyShare = 16
	busyMost  = 50 * time.Millisecond
	// mostLate is how often a sender may publish after that while unread data of its remains.
	mostLate = 3
	// mostOverlaps is how often goroutines may receive at the same time before the socket takes no
	// flows any more.
	mostOverlaps = 64
	// checkTime is how often the kernel is asked whether the other end of a flow still is who it
	// was, and whether flows are over.
	checkTime = 100 * time.Millisecond
	// earlyPause is how long a receiver waits between looks for a datagram by the kernel that a
	// record waits for (SPEC 10.3), and lateTime for how long if the socket has not dropped it:
	// on a busy machine the kernel may leave it to ksoftirqd.
	earlyPause = 50 * time.Microsecond
	lateTime   = 20 * time.Millisecond
)

// inbound is what a Socket has of the datagrams that come.
type inbound struct {
	s    *Socket
	port uint16

	received atomic.Uint32 // by the kernel, up to announceAfter
	none     atomic.Uint32 // the word of the page for which a CLAIM found nothing
	nonEmpty atomic.Bool   // there are flows, or kept datagrams: for a quick look without mu
	waiting  atomic.Int32  // calls on the kernel's socket; changed under mu if there are flows

	mu        sync.Mutex
	phase     setupPhase           // guarded by mu, as all that follows
	announced *client.Announcement // nil: it is not
	flows     []*inflow
	active    []*inflow // those that are looked at (inflow.on)
	// noBells says that no flow is armed for a bell any more, and none takes records that wait
	// for datagrams by the kernel (AFTER). Once set it stays: a property of the socket, and no
	// state of a flow. Either several goroutines have received at the same time: one that sleeps
	// does not hear what woke another. Or another socket may take the address: the bell, or the
	// datagram that a record waits for, would reach that one.
	noBells  bool
	overlaps int // how often goroutines have received at the same time
	bySrc    map[netip.AddrPort]*inflow
	dirty    bool // senders want to know that the kernel's queue is empty
	turn     int
	spin     time.Duration // how long to look, at present
	checked  int64
	kept     []kept // what was in the rings of flows that have ended

	credit   time.Duration // how long to wait for senders that are publishing,
	credited int64         // and when that was
	byKernel uint64        // datagrams, while there are flows
	gone     uint32        // of the socket's drops, those that flows have counted as lost
}

func (in *inbound) init(s *Socket) {
	in.s, in.port, in.bySrc, in.spin = s, s.cfg.Local.Port(), make(map[netip.AddrPort]*inflow), s.cfg.Spin
}

// Datagram is what Receive has received.
type Datagram struct {
	N    int // bytes in the buffer
	Len  int // of the datagram
	From netip.AddrPort
	To   netip.AddrPort
	datagram.Meta
	Err     error  // there is none, as the deadline has passed: what a Read of Config.Raw says
	control []byte // by the kernel: its control messages
}

// Receive receives a datagram through memory. ok false: call the kernel's socket, which may
// wait, and then Received, whatever it has returned.
func (s *Socket) Receive(b []byte) (d Datagram, ok bool) {
	in := &s.in
	if s.plain.Load() {
		return d, false
	}
	if !in.nonEmpty.Load() {
		// Who sets some looks at waiting afterwards.
		if in.waiting.Add(1); !in.nonEmpty.Load() {
			return d, false
		}
		in.waiting.Add(-1)
	}
	for {
		if err := s.deadlineError(); err != nil {
			return Datagram{Err: err}, true
		}
		d, ok, again := in.receiveOnce(b)
		if !again {
			return d, ok
		}
		time.Sleep(earlyPause)
	}
}

// deadlineError returns the error of a read whose deadline has passed. The kernel's call may not
// say it: by then another goroutine may have moved the deadline, and the call would wait, while
// senders use the rings.
func (s *Socket) deadlineError() error {
	if !hasPassed(&s.readUntil) {
		return nil
	}
	return s.cfg.Raw.Read(func(uintptr) bool { return true })
}

// receiveOnce looks once for a datagram where there may be flows. again: call it again after a
// moment.
func (in *inbound) receiveOnce(b []byte) (d Datagram, ok, again bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.turn++; in.turn%checkEvery == 0 {
		in.checkSenders()
	}
	if d, ok = in.fromKept(b); ok {
		return d, true, false
	}
	if in.waiting.Load() > 0 {
		in.noteOverlap()
	}
	if len(in.active) > 0 {
		if d, ok, again = in.fromFlows(b); ok || again {
			return d, ok, again
		}
	}
	in.checkSenders()
	if d, ok = in.fromKept(b); ok { // of a flow that has ended meanwhile
		return d, true, false
	}
	in.tellDry()
	in.waiting.Add(1)
	if len(in.flows) == 0 && len(in.kept) == 0 {
		in.nonEmpty.Store(false)
	}
	return d, false, false
}

// fromFlows receives from those that are active. Neither ok nor again: they are armed, and there
// is nothing. The caller has mu, as for all that follows.
func (in *inbound) fromFlows(b []byte) (d Datagram, ok, again bool) {
	if alone := in.waiting.Load() == 0; alone && (in.turn%shadowEvery == 0 || in.firstWaiting() != nil) {
		if d, ok, again = in.fromKernel(b); ok || again { // an error of the kernel's socket is the program's
			return d, ok, false
		}
	}
	if d, ok = in.takeEarliest(b); ok {
		return d, true, false
	}
	readable := in.kernelReadable()
	for f := in.firstWaiting(); f != nil && in.isLost(f, f.rx.Missing(), shm.Nanotime(), readable); f = in.firstWaiting() {
		in.giveUp(f)
		if d, ok = in.takeEarliest(b); ok {
			return d, true, false
		}
	}
	if in.firstWaiting() != nil {
		return d, false, true
	}
	if !readable && in.spinForRecord() {
		if d, ok = in.takeEarliest(b); ok {
			return d, true, false
		}
	}
	return in.armAndLook(b)
}

// noteOverlap is called when a goroutine receives while another one sleeps in the kernel's call.
// That one hears the kernel alone, so all datagrams go by the kernel, and a look at the flows only
// costs time. So a socket with several readers ends its flows, and takes no more. A few overlaps do
// not count: one goroutine may take over from another. Nor does it end flows with records: the one
// that sleeps would not hear of what is kept.
func (in *inbound) noteOverlap() {
	in.endBells()
	in.overlaps++
	ready := func(f *inflow) bool { return f.rx.Ready() }
	if in.overlaps >= mostOverlaps && in.phase != setupEnded && !slices.ContainsFunc(in.flows, ready) {
		in.endFlowsLocked(true, connstats.WhyBusy)
	}
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
	in.awaitSenders()
}

// takeEarliest takes the earliest record.
func (in *inbound) takeEarliest(b []byte) (d Datagram, ok bool) {
	var first *inflow
	var rec datagram.Record
	for i := 0; i < len(in.active); i++ {
		f := in.active[i]
		r, there, err := f.rx.Next()
		switch {
		case err != nil:
			in.dropFlow(f, connstats.WhyBreach)
			i--
		case there && !f.rx.Due():
			if f.early == 0 {
				f.early, f.earlyAt = shm.Nanotime(), in.byKernel
			}
		case there && (first == nil || int64(r.Stamp-rec.Stamp) < 0):
			first, rec = f, r
		}
	}
	if first == nil {
		return d, false
	}
	return in.takeRecord(first, rec, b), true
}

// takeRecord copies the record that Next has returned of f, and gives its room back.
func (in *inbound) takeRecord(f *inflow, rec datagram.Record, b []byte) (d Datagram) {
	info := f.rx.Info()
	d = Datagram{Len: rec.Len, From: info.From, To: info.To, Meta: rec.Meta}
	d.N = f.rx.CopyTo(b)
	f.rx.Consume()
	f.used, f.early = true, 0
	f.count.Add(segment.ReceivedDirect, uint64(rec.Len))
	if rec.Len <= 112 {
		f.count.Add(segment.ReceivedVELOLast, 1)
	} else {
		f.count.Add(segment.ReceivedRMAInfo, 1)
	}
	in.s.stats.receivedDirect.Add(1)
	return d
}

// fromKernel takes a datagram of the kernel's socket, if there is one, while flows are active.
// One whose sender has records that are due comes after these. failed: the socket has an error;
// the senders use the kernel.
func (in *inbound) fromKernel(b []byte) (d Datagram, ok, failed bool) {
	_ = in.s.cfg.Raw.Control(func(fd uintptr) {
		if events := pollIn(int(fd)); events&unix.POLLERR != 0 {
			failed = true // a receive here would take it
			return
		} else if events&unix.POLLIN == 0 {
			return
		}
		_, _, _, sa, err := unix.Recvmsg(int(fd), make([]byte, 1), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if f := in.bySrc[addrOf(sa)]; err != nil || f != nil && in.hasDue(f) {
			return
		}
		oob := make([]byte, 256)
		n, oobn, _, sa, err := unix.Recvmsg(int(fd), b, oob, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
		if ok = err == nil; ok {
			d = Datagram{N: min(n, len(b)), Len: n, From: addrOf(sa), control: oob[:oobn]}
			in.countReceived(d.From)
			in.claimFlow()
		}
	})
	if failed {
		in.armFlows()
	}
	return d, ok, failed
}

// hasDue reports whether a flow has a record that is due.
func (in *inbound) hasDue(f *inflow) bool {
	if !f.isActive() || !f.rx.Ready() {
		return false
	}
	_, there, err := f.rx.Next()
	return err != nil || there && f.rx.Due()
}

// kernelReadable reports whether something is in the queue of the kernel's socket.
func (in *inbound) kernelReadable() bool {
	some := true
	_ = in.s.cfg.Raw.Control(func(fd uintptr) { some = pollIn(int(fd))&unix.POLLIN != 0 })
	return some
}

// poll is the kernel's, but in a test.
var poll = unix.Poll

// pollIn is what poll says of a descriptor; POLLIN, if it does not say. Even one that does not
// wait is interrupted by a signal, which says nothing of the descriptor.
func pollIn(fd int) int16 {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err := poll(p, 0)
	for err == unix.EINTR {
		_, err = poll(p, 0)
	}
	if err != nil {
		return unix.POLLIN
	}
	return p[0].Revents
}

// spinForRecord polls the rings for a while: longer if that has paid, and shorter if not.
func (in *inbound) spinForRecord() bool {
	limit := in.spin
	if limit <= 0 {
		return false
	}
	start := shm.Nanotime()
	for i := 1; ; i++ {
		for range 16 {
			for _, f := range in.active {
				if f.rx.Ready() {
					in.spin = min(in.s.cfg.Spin, 2*in.spin+2*time.Microsecond)
					return true
				}
			}
			shm.Pause(1)
		}
		if time.Duration(shm.Nanotime()-start) >= limit || hasPassed(&in.s.readUntil) || in.s.left.Load() {
			break
		}
		if i%4 == 0 {
			runtime.Gosched()
		}
	}
	in.spin = max(in.spin/2, min(in.s.cfg.Spin, 2*time.Microsecond))
	return false
}

// mayWait is how long a receiver may wait for senders that are publishing, which may be so for
// as long as they like.
func (in *inbound) mayWait(now int64) time.Duration {
	in.credit = min(in.credit+time.Duration(now-in.credited)/busyShare, busyMost)
	in.credited = now
	return min(in.credit, busyTime)
}

// armFlows arms all active flows: their senders use the kernel.
func (in *inbound) armFlows() {
	for _, f := range in.active {
		if f.rx.Arm(in.noBells); f.phase == inMemory {
			f.on(in, inArm)
		}
	}
	in.awaitSenders()
}

// armAndLook arms all flows, and looks into their rings once more. Neither ok nor again: they
// are empty.
func (in *inbound) armAndLook(b []byte) (d Datagram, ok, again bool) {
	in.armFlows()
	d, ok = in.takeEarliest(b)
	again = !ok && in.firstWaiting() != nil
	for i := len(in.active) - 1; i >= 0; i-- { // which a step may shorten
		switch f := in.active[i]; {
		case !ok && !again:
			f.on(in, inEmpty)
		case in.waiting.Load() == 0:
			f.useMemory(in)
		}
	}
	return d, ok, again
}

// awaitSenders waits until no sender publishes that may not have seen that its flow is armed.
func (in *inbound) awaitSenders() {
	start := shm.Nanotime()
	now, most := start, in.mayWait(start)
	for i := len(in.active) - 1; i >= 0; i-- {
		for f := in.active[i]; f.rx.Busy(); {
			if now = shm.Nanotime(); time.Duration(now-start) > most {
				if f.late++; f.late > mostLate || !f.rx.Ready() { // else what it has published is taken
					in.finishFlow(f, connstats.WhyBreach)
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
	in.credit = max(in.credit-time.Duration(now-start), 0)
}

// useMemory has the sender of f use the segment. No goroutine may sleep in the kernel.
func (f *inflow) useMemory(in *inbound) {
	f.on(in, inWake)
	f.rx.Disarm()
}

// tellDry tells senders that nothing of theirs is in the queue of the kernel's socket. Another
// goroutine in the kernel's call may have taken a datagram from there, and not have counted it:
// then its sender would take that for lost.
func (in *inbound) tellDry() {
	if !in.dirty || in.waiting.Load() > 0 {
		return
	}
	var counts [maxFlows]uint64
	for i, f := range in.flows {
		counts[i] = f.rx.Kernel()
	}
	if in.kernelReadable() {
		return
	}
	for i, f := range in.flows {
		f.rx.Dry(counts[i])
	}
	in.dirty = false
}

// Received says that a call of the kernel's socket, before which Receive has found nothing, has
// received a datagram from an address, or failed: the zero AddrPort.
func (s *Socket) Received(from netip.AddrPort) {
	in := &s.in
	switch {
	case s.plain.Load(): // nobody counts any more
		return
	case !from.IsValid():
	case in.received.Load() < announceAfter:
		if in.received.Add(1) == announceAfter {
			in.announceSocket()
		}
	default:
		if _, may := in.hasOffer(); may {
			in.mu.Lock()
			in.claimFlow()
			in.mu.Unlock()
		}
	}
	if !in.nonEmpty.Load() {
		in.waiting.Add(-1)
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waiting.Add(-1)
	in.countReceived(plainAddr(from))
}

// countReceived counts a datagram that came by the kernel. Its sender uses the segment from then
// on, unless a goroutine sleeps in the kernel's call.
func (in *inbound) countReceived(from netip.AddrPort) {
	in.byKernel++
	in.keptAfter(from)
	f := in.bySrc[from]
	if f == nil {
		return
	}
	f.rx.Took()
	in.s.stats.receivedShadow.Add(1)
	in.dirty = true
	if f.young++; f.young <= youngUntil {
		in.tellDry() // a program that sends and receives in turn never waits
	}
	switch {
	case f.phase == inMemory:
	case in.waiting.Load() == 0:
		f.useMemory(in)
	case f.phase == inArmed && f.rx.Ready():
		f.on(in, inRing)
	}
}

package udp

import (
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// outflow is where datagrams to one receiver go.
type outflow struct {
	to netip.AddrPort

	mu        sync.Mutex
	phase     outPhase     // guarded by mu, as all that follows
	tx        *datagram.Tx // nil if there is no segment (flowing)
	reliable  bool         // by a rule its sender waits for room: said by the offer, and never changed
	entry     connstats.Entry
	count     *segment.Counters    // nil: there is no entry
	sends     datagram.KernelSends // beside mu, as it says
	clear     bool                 // no send of when there was no outflow is under way
	sent      int                  // by the kernel, since since
	since     time.Time            // of the first of them
	pause     time.Duration
	notBefore time.Time
	unsettled int    // datagrams by the kernel since it was settled
	backoff   int    // how long it does not wait after a wait in vain, in times of that wait
	waitAfter int64  // when that is over; 0: at once
	stalledAt uint64 // outStalled: what the receiver had taken
	cookie    uint64 // of the receiver's socket, as the kernel said before the offer
	looked    int64  // when it was last asked; 0: not since
}

// takeEntry takes an entry for the flow in the broker's statistics, if it has none.
func (f *outflow) takeEntry(s *Socket, from netip.AddrPort) {
	if f.count == nil {
		f.entry = s.cfg.Broker.Stats().Alloc(connstats.EntryInfo{Key: wire.Key{Client: from, Server: f.to}, FD: s.fd, Since: time.Now(), UDP: true})
		f.count = (*segment.Counters)(f.entry.Counters())
	}
}

func (f *outflow) leaveEntry() {
	f.entry.Free()
	f.count = nil
}

// sentByKernel counts a datagram that was sent, and offers a flow when that is worth it.
//
// +checklocks:f.mu
func (f *outflow) sentByKernel(s *Socket, bytes int) {
	if f.tx != nil {
		f.tx.Collect()
		f.unsettled++
		f.count.Add(segment.SentShadow, uint64(bytes))
		s.stats.sentShadow.Add(1)
		f.noteAttached(s)
		return
	}
	now := time.Now()
	if now.Sub(f.since) > time.Second {
		f.sent, f.since = 0, now
	}
	f.clear = f.clear || s.out.unknownSends(f.to).Load() == 0
	if f.sent++; f.sent < s.cfg.Offers || now.Before(f.notBefore) || !f.clear {
		return
	}
	f.sent = 0
	f.notBefore = now.Add(f.pause)
	f.pause = min(2*f.pause, offerMost)
	why := f.offerFlow(s)
	if why == connstats.WhyNothing || !s.cfg.Explain {
		return
	}
	s.out.explains.CompareAndSwap(nil, f)
	if from, ok := s.sourceFor(f.to); ok && s.out.explains.Load() == f {
		f.takeEntry(s, from)
		f.entry.Set(connstats.ModeTCP, why)
	}
}

// offerFlow offers a flow, or returns why not.
//
// +checklocks:f.mu
func (f *outflow) offerFlow(s *Socket) (why connstats.Why) {
	why, reliable := s.cfg.Send(f.to)
	switch {
	case why != connstats.WhyNothing:
		return why
	case !s.cfg.Broker.Connected():
		return s.cfg.Broker.Absent()
	case !s.cfg.Broker.Receiver(f.to.Port()):
		return connstats.WhyNoListener
	}
	from, ok := s.sourceFor(f.to)
	if !ok {
		return connstats.WhyNoMemory
	}
	// Before the broker looks: the one that is there then and later is the one that it knows.
	cookie, err := peerOf(from, f.to)
	if err != nil {
		return whyNot(err)
	}
	if s.out.flows.Load() >= maxFlows {
		return connstats.WhyNoMemory
	}
	info := datagram.Info{Nonce: datagram.NewNonce(), From: from, To: f.to}
	seg, err := datagram.Create(info, s.cfg.Ring)
	if err != nil {
		return connstats.WhyNoMemory
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		seg.Retire()
		return connstats.WhyNoMemory
	}
	f.on(outOffer)
	s.out.flows.Add(1)
	f.tx, f.reliable = datagram.NewTx(seg, pair[0], shm.Nanotime(), &f.sends), reliable
	f.takeEntry(s, from)
	f.entry.SetNonce(info.Nonce)
	f.count.Set(segment.RingSize, uint64(seg.Len()))
	f.entry.Set(connstats.ModeTCP, connstats.WhyOffered)
	f.unsettled, f.backoff, f.waitAfter = 0, 0, 0
	f.cookie, f.looked = cookie, 0
	of := client.Socket{Conn: s.cfg.Raw, UDP: true, Local: from, Remote: f.to}
	err = s.cfg.Broker.Offer(of, info.Nonce, seg.Fd(), pair[1], func(why wire.Reason) {
		go f.endRefused(s, info.Nonce, why) // the client's goroutine does not wait
	})
	_ = unix.Close(pair[1]) // whoever has the offer has it: its end ends with the offer
	if err != nil {
		f.endFlow(s, outRefused, connstats.WhyNoBroker)
		return connstats.WhyNothing // the flow's entry says it
	}
	seg.CloseFd()
	s.tidyLater()
	return connstats.WhyNothing
}

// endRefused ends the flow with this nonce, whose offer the broker has refused.
func (f *outflow) endRefused(s *Socket, nonce [16]byte, why wire.Reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.phase != outOffered || f.tx.Info().Nonce != nonce:
	case why == wire.SwitchedOff: // which may end, and says nothing of this flow
		f.pause = offerAgain
		f.endFlow(s, outRefused, connstats.WhySwitchedOff)
	default:
		f.endFlow(s, outRefused, connstats.WhyRefused)
	}
}

// noteAttached moves an offered flow on: to up if the receiver has attached, to its end if it
// refuses or nobody has the offer any more.
//
// +checklocks:f.mu
func (f *outflow) noteAttached(s *Socket) {
	if f.phase != outOffered {
		return
	}
	switch attached, refused := f.tx.Attached(); {
	case refused:
		f.endFlow(s, outRefused, connstats.WhyRefused)
	case attached:
		f.on(outAttached)
		f.unsettled = 0 // the receiver counts from now on
		f.entry.SetPath(connstats.PathMemory)
		f.entry.Set(connstats.ModeDirect, connstats.WhyNothing)
		s.cfg.Broker.Forget(f.tx.Info().Nonce)
	case f.tx.Probe(shm.Nanotime()): // nobody has the offer any more
		f.endFlow(s, outGone, connstats.WhyRefused)
	}
}

// mayBeDirect reports whether datagrams may go through the segment. Now and then it looks
// whether the receiver still has its address: a socket that is closed leaves its port to others,
// but not the segment. A flow that the broker has switched off ends once the receiver has all:
// what the kernel carries comes after.
//
// +checklocks:f.mu
func (f *outflow) mayBeDirect(s *Socket) bool {
	f.noteAttached(s)
	if f.phase != outUp && f.phase != outStalled {
		return false
	}
	now, info := shm.Nanotime(), f.tx.Info()
	if f.looked == 0 || time.Duration(now-f.looked) >= checkTime {
		f.looked = now
		if hasMoved(info.From, info.To, f.cookie) {
			f.endFlow(s, outMoved, connstats.WhyNothing)
			return false
		}
	}
	if segment.SwitchedOff(f.entry.Switch()) && f.awaitConsumed(specialTime) {
		f.endFlow(s, outLeave, connstats.WhySwitchedOff)
		return false
	}
	return true
}

// sendDirect sends a datagram through the segment. It reports false if the kernel has to send
// it.
//
// +checklocks:f.mu
func (f *outflow) sendDirect(b []byte, m datagram.Meta, s *Socket) bool {
	var since int64 // when there was no room for it
	for waited := false; ; {
		switch f.tx.Send(b, m) {
		case datagram.Published:
			f.unsettled, f.waitAfter = 0, 0
			if f.phase == outStalled {
				f.on(outRoom)
			}
			f.count.Add(segment.SentDirect, uint64(len(b)))
			if len(b) <= 112 {
				f.count.Add(segment.SentVELOLast, 1)
			} else {
				f.count.Add(segment.SentRMAInfo, 1)
			}
			s.stats.sentDirect.Add(1)
			return true
		case datagram.Gone:
			f.endFlow(s, outGone, connstats.WhyNothing)
			return false
		case datagram.ByKernel:
			// It sleeps, and nothing is on its way.
			if f.tx.Bell() || f.tx.Armed() && f.tx.Settled(shm.Nanotime()) {
				f.unsettled, f.waitAfter = 0, 0
				return false
			}
			if waited || !f.awaitSettled() {
				return false
			}
			waited = true
		case datagram.NoRoom:
			if since == 0 {
				since = shm.Nanotime()
			}
			switch f.awaitRoom(s, since) {
			case roomNone:
				f.tx.Drop()
				s.stats.dropped.Add(1)
				f.count.Add(segment.SentDemote, 1)
				return true
			case roomOver:
				return false
			}
		}
	}
}

// awaitSettled waits, if it is time for that, until the receiver is awake, and has what went by
// the kernel.
//
// +checklocks:f.mu
func (f *outflow) awaitSettled() bool {
	known := f.tx.Known()
	most, least := settleTime, leastWait
	if !known {
		most, least = firstTime, firstWait
	}
	start := shm.Nanotime()
	if f.unsettled < least || start < f.waitAfter {
		return false
	}
	for ; ; yieldCPU() {
		now := shm.Nanotime()
		if f.tx.Settled(now) && (!f.tx.Armed() || !known) {
			f.backoff = 0
			return true
		}
		if now-start > int64(most) {
			f.backoff = min(max(2*f.backoff, leastBackoff), mostBackoff)
			f.waitAfter = now + int64(f.backoff)*int64(most)
			return false
		}
	}
}

// yieldCPU lets another goroutine, and another thread of this CPU, run.
func yieldCPU() {
	runtime.Gosched()
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// room is what a wait for room has come to.
type room int

const (
	roomThere room = iota // there may be some: try again
	roomNone              // drop the datagram
	roomOver              // the flow has ended, or the call has: the kernel says so
)

// awaitRoom waits until there is more room. A receiver that takes little each time has its
// sender wait for no longer, all in all, than one that takes nothing. While a rule has the
// sender wait for long the lock is free: another goroutine may close the socket, end the flow,
// and offer another one.
//
// +checklocks:f.mu
func (f *outflow) awaitRoom(s *Socket, since int64) room {
	before, _ := f.tx.Consumed()
	if f.phase == outStalled {
		if before == f.stalledAt {
			return roomNone
		}
		f.on(outRoom)
	}
	for i := 0; ; i++ {
		if n, _ := f.tx.Consumed(); n != before || f.tx.Ended() {
			return roomThere
		}
		switch late := shm.Nanotime()-since > int64(roomTime); {
		case late && !f.reliable:
			f.on(outFull)
			f.stalledAt = before
			return roomNone
		case late:
			if f.tx.HungUp() {
				f.endFlow(s, outGone, connstats.WhyNothing)
			}
			tx := f.tx
			if tx == nil || hasPassed(&s.writeUntil) || s.left.Load() {
				return roomOver
			}
			f.mu.Unlock()
			time.Sleep(50 * time.Microsecond)
			f.mu.Lock()
			if f.tx != tx {
				return roomOver
			}
		case i > 64:
			yieldCPU()
		}
		shm.Pause(1)
	}
}

// awaitConsumed waits until the receiver has everything. False: it has not after some time.
//
// +checklocks:f.mu
func (f *outflow) awaitConsumed(most time.Duration) bool {
	for start := shm.Nanotime(); ; yieldCPU() {
		if _, all := f.tx.Consumed(); all || shm.Nanotime()-start > int64(most) {
			return all
		}
	}
}

// forgetIfIdle ends the outflow if it has no flow and nothing was sent for a second. It reports
// false if it does not end, also while it is in use.
//
// +checklocksignore: it does not know TryLock
func (f *outflow) forgetIfIdle() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.phase != outKernel || f.sends.UnderWay() > 0 || time.Since(f.since) <= time.Second {
		return false
	}
	f.on(outClose)
	f.leaveEntry()
	return true
}

// leaveFlow ends the flow when the receiver has taken everything, or after most. why: WhyNothing
// if the socket is closed.
//
// +checklocks:f.mu
func (f *outflow) leaveFlow(s *Socket, most time.Duration, why connstats.Why) {
	if !f.hasSegment() {
		return
	}
	f.awaitConsumed(most)
	if f.phase == outOffered {
		s.cfg.Broker.Withdraw(f.tx.Info().Nonce)
	}
	f.endFlow(s, outLeave, why)
}

// endFlow ends the flow. The kernel carries what follows, and a flow is offered again some time
// later.
//
// +checklocks:f.mu
func (f *outflow) endFlow(s *Socket, what outEvent, why connstats.Why) {
	if f.phase != outOffered {
		f.pause = offerAgain
	}
	f.on(what)
	f.tx.Close()
	f.tx = nil
	if why != connstats.WhyNothing {
		f.entry.Set(connstats.ModeDemoted, why)
	}
	f.leaveEntry()
	s.out.flows.Add(-1)
}

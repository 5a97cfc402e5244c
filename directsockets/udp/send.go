package udp

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
)

const (
	// leaveTime is how long Leave waits for the receivers.
	leaveTime = 20 * time.Millisecond
	// specialTime is how long a datagram that goes by the kernel waits for those before it.
	specialTime = time.Millisecond
	// A sender waits for its receiver to have all that went by the kernel: for firstTime, after
	// firstWait datagrams, while it does not know how many were lost, later for settleTime after
	// leastWait. A wait in vain has the next one come after leastBackoff times as long, and each
	// further one after twice that, up to mostBackoff: waits cost little, and a busy machine,
	// where the receiver takes long, has no sender give up.
	firstTime    = 2 * time.Millisecond
	firstWait    = 16
	settleTime   = 200 * time.Microsecond
	leastWait    = 2
	leastBackoff = 16
	mostBackoff  = 64
	// roomTime is how long a receiver may take nothing while there is no room. Then datagrams
	// are dropped until it does.
	roomTime = time.Millisecond
	// offerAgain is how long an offer that was not taken is not repeated, at first.
	offerAgain = time.Second
	offerMost  = 16 * time.Second
	// maxRoutes is how many receivers without a flow are counted.
	maxRoutes = 256
)

// outbound is what a Socket has of the datagrams that leave.
type outbound struct {
	flows atomic.Int32 // those with a segment
	// explains is the one whose entry says why no flow is offered, the first such receiver; nil:
	// there is none, or nobody wants to know.
	explains atomic.Pointer[outflow]
	// others counts, by its port, the sends by the kernel under way to a receiver that had no
	// outflow when they began.
	others [16]atomic.Int64

	mu sync.RWMutex
	to map[netip.AddrPort]*outflow // guarded by mu
	// ended says that the socket has left, and gets no outflow any more: those that it had have
	// ended, and their states with them. Guarded by mu.
	ended bool
}

func (o *outbound) init() { o.to = make(map[netip.AddrPort]*outflow) }

// findFlow returns the outflow to an address; nil: there is none.
func (o *outbound) findFlow(to netip.AddrPort) *outflow {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.to[to]
}

// unknownSends returns the count of sends under way to receivers that have no outflow.
func (o *outbound) unknownSends(to netip.AddrPort) *atomic.Int64 {
	return &o.others[int(to.Port())%len(o.others)]
}

// KernelSend is a send by the kernel that is under way: who has it calls Ended.
type KernelSend struct {
	s          *Socket // nil: nobody counts it
	f          *outflow
	to         netip.AddrPort // if f is nil
	kernelOnly bool           // no flow is offered for it, as none would carry it
}

// Send sends a datagram through memory. sent false: call the kernel's socket, and then Ended of
// k. So it is with a datagram that is too long, and with control messages m that no flow
// carries: these end the flow, whose receiver could not tell how many datagrams they make of
// one. A nil m leaves all to the socket's options.
func (s *Socket) Send(b []byte, to netip.AddrPort, m *Control) (k KernelSend, sent bool) {
	if s.left.Load() {
		return k, false
	}
	to = plainAddr(to)
	for counted := false; ; {
		f := s.out.findFlow(to)
		switch {
		case f == nil && counted:
			return KernelSend{s: s, to: to, kernelOnly: m.forKernel()}, false
		case f == nil: // then look again: who makes an outflow looks at this afterwards
			s.out.unknownSends(to).Add(1)
			counted = true
			continue
		case counted:
			s.out.unknownSends(to).Add(-1)
			counted = false
		}
		var ended bool
		if k, sent, ended = f.sendOrBegin(s, b, m); !ended {
			return k, sent
		}
	}
}

// sendOrBegin sends a datagram through the flow, or begins a send by the kernel. ended: the
// outflow has ended, find another one.
func (f *outflow) sendOrBegin(s *Socket, b []byte, m *Control) (k KernelSend, sent, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := s.currentOptions()
	kernelOnly := o.plain || m.forKernel()
	switch {
	case f.phase == outEnded:
		return k, false, true
	case kernelOnly:
		f.leaveFlow(s, specialTime, connstats.WhyUnsupportedCall)
	case !f.mayBeDirect(s):
	case m.hasOtherSource(f.tx.Info().From.Addr()): // its receiver does not count it
		f.awaitConsumed(specialTime)
		return k, false, false
	case len(b) > datagram.MaxLen || hasPassed(&s.writeUntil):
		f.awaitConsumed(specialTime)
	default:
		if o.shareable {
			f.tx.Share()
		}
		if f.sendDirect(b, m.metaOf(o), s) {
			return k, true, false
		}
	}
	f.sends.Begin()
	return KernelSend{s: s, f: f, kernelOnly: kernelOnly}, false, false
}

// Ended says how the kernel's call has ended, which has sent all bytes or has failed.
func (k KernelSend) Ended(bytes int, err error) {
	s, f := k.s, k.f
	switch {
	case s == nil:
		return
	case f == nil:
		s.out.unknownSends(k.to).Add(-1)
		if a := k.to.Addr(); err == nil && !k.kernelOnly && s.cfg.Broker.Receiver(k.to.Port()) &&
			a.Zone() == "" && !a.IsMulticast() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() {
			s.out.countReceiver(k.to)
		}
		return
	}
	if err == nil {
		f.sends.End() // before the lock: who has that may be waiting for this
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && f.tx != nil:
		f.tx.Failed()
	case err != nil:
		f.sends.Cancel()
	case f.phase != outEnded && !k.kernelOnly:
		f.sentByKernel(s, bytes)
	}
}

// countReceiver makes an outflow, which counts the datagrams to a receiver.
func (o *outbound) countReceiver(to netip.AddrPort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.to[to] != nil {
		return
	}
	if len(o.to) >= maxRoutes {
		for at, f := range o.to {
			if f.forgetIfIdle() {
				delete(o.to, at)
				break
			}
		}
		if len(o.to) >= maxRoutes {
			return
		}
	}
	o.to[to] = &outflow{to: to, sent: 1, since: time.Now(), pause: offerAgain}
}

// endGone ends flows whose receiver is gone. It reports whether there are others.
func (o *outbound) endGone(s *Socket) bool {
	o.mu.RLock()
	all := slices.Collect(maps.Values(o.to))
	o.mu.RUnlock()
	for _, f := range all {
		f.mu.Lock()
		if f.noteAttached(s); f.phase != outOffered && f.tx != nil && f.tx.HungUp() {
			f.endFlow(s, outGone, connstats.WhyNothing)
		}
		f.mu.Unlock()
	}
	return o.flows.Load() > 0
}

// endFlows ends all flows.
func (o *outbound) endFlows(s *Socket, wait bool, why connstats.Why) {
	o.mu.Lock()
	o.ended = true
	all := slices.Collect(maps.Values(o.to))
	clear(o.to) // before they have ended: Send looks for another one in place of one that has
	o.mu.Unlock()
	until := time.Now()
	if wait {
		until = until.Add(leaveTime)
	}
	for _, f := range all {
		f.mu.Lock()
		f.leaveFlow(s, time.Until(until), why)
		f.on(outClose)
		f.leaveEntry()
		f.mu.Unlock()
	}
}

// sourceFor returns the address from which the kernel would send.
func (s *Socket) sourceFor(to netip.AddrPort) (from netip.AddrPort, ok bool) {
	local := plainAddr(s.cfg.Local)
	if !local.Addr().IsUnspecified() {
		return local, local.Addr().Is4() == to.Addr().Is4() && local.Addr().Zone() == ""
	}
	domain, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		domain, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return from, false
	}
	defer unix.Close(fd)
	if unix.Connect(fd, at) != nil {
		return from, false
	}
	sa, err := unix.Getsockname(fd)
	return netip.AddrPortFrom(addrOf(sa).Addr(), local.Port()), err == nil
}

// addrOf converts an IP address to the form that flows use. For other families it returns the
// zero AddrPort.
func addrOf(sa unix.Sockaddr) (at netip.AddrPort) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
		if sa.ZoneId != 0 { // of a link-local address: no answer could be sent without it
			at = netip.AddrPortFrom(at.Addr().WithZone(zoneName(int(sa.ZoneId))), at.Port())
		}
	}
	return plainAddr(at)
}

// zoneName is the zone of an interface, as package net says it.
func zoneName(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return strconv.Itoa(index)
}

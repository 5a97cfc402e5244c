package udp

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/datagram"
	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

const (
	// leaveTime is how long Leave waits for the receivers.
	leaveTime = 20 * time.Millisecond
	// specialTime is how long a datagram that goes by the kernel waits for those before it.
	specialTime = time.Millisecond
	// A sender waits for its receiver to have all that went by the kernel: for firstTime, before
	// every firstWait datagrams, while it does not know how many were lost, later for settleTime
	// before leastWait datagrams. Each wait in vain has the next one come after twice as many, and
	// one that was not after half.
	firstTime  = 2 * time.Millisecond
	firstWait  = 16
	settleTime = 200 * time.Microsecond
	leastWait  = 2
	mostWait   = 2048
	// roomTime is how long a receiver may take nothing while there is no room. Then datagrams are
	// dropped until it does.
	roomTime = time.Millisecond
	// offerAgain is how long an offer that was not taken is not repeated, at first.
	offerAgain = time.Second
	offerMost  = 16 * time.Second
	// maxRoutes is how many receivers without a flow are counted.
	maxRoutes = 256
)

// outbound is what a Socket has of the datagrams that leave.
type outbound struct {
	last atomic.Pointer[outflow]
	some atomic.Bool // there are outflows

	mu    sync.RWMutex
	to    map[netip.AddrPort]*outflow // guarded by mu
	flows int                         // guarded by mu; those with a segment
	ended bool                        // guarded by mu
}

// outflow is where datagrams to one receiver go.
type outflow struct {
	to netip.AddrPort

	mu        sync.Mutex
	tx        *datagram.Tx // guarded by mu, as all that follows; nil: by the kernel
	attached  bool
	reliable  bool
	peer      int // D's end of the liveness pair; -1: closed
	entry     connstats.Entry
	count     *segment.Counters
	sent      int       // by the kernel, since since
	since     time.Time // of the first of them
	pause     time.Duration
	notBefore time.Time
	unsettled int // datagrams by the kernel since it was settled
	waitAt    int // how many make it wait
	patience  int
	stalled   bool   // datagrams are dropped until the receiver takes something
	stalledAt uint64 // what it had taken
}

func (o *outbound) init() { o.to = make(map[netip.AddrPort]*outflow) }

// find returns the outflow to an address; nil: there is none.
func (o *outbound) find(to netip.AddrPort) *outflow {
	if !o.some.Load() {
		return nil
	}
	if f := o.last.Load(); f != nil && f.to == to {
		return f
	}
	o.mu.RLock()
	f := o.to[to]
	o.mu.RUnlock()
	if f != nil {
		o.last.Store(f)
	}
	return f
}

// Send sends a datagram through memory. false: call the kernel's socket, and then Sent if it has
// sent it. m is nil for what the socket's options say. The datagram is longer than can be, or m is
// not what a flow can carry: kernel.
func (s *Socket) Send(b []byte, to netip.AddrPort, m *Control) bool {
	f := s.out.find(plainAddr(to))
	if f == nil || s.left.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tx == nil || !f.attach(s) {
		return false
	}
	meta, each, ok := s.meta(b, f, m)
	if !ok || over(&s.writeUntil) {
		f.drain(specialTime)
		return false
	}
	if each == 0 || f.tx.Trains() {
		meta.Each = each
		return f.send(b, meta, s)
	}
	if f.way() != datagram.Published {
		return false
	}
	for rest := b; len(rest) > 0; rest = rest[min(each, len(rest)):] {
		if !f.send(rest[:min(each, len(rest))], meta, s) { // the rest of the train is the kernel's
			f.orphan(s, rest, each)
			break
		}
	}
	return true
}

// way says which way the next datagram goes, as far as can be known before.
func (f *outflow) way() datagram.Outcome {
	if f.tx.Armed() || !f.tx.Settled(shm.Nanotime()) {
		return datagram.ByKernel
	}
	return datagram.Published
}

// attach reports whether the receiver has the segment.
func (f *outflow) attach(s *Socket) bool {
	if f.attached {
		return true
	}
	attached, refused := f.tx.Attached()
	if refused || !attached && f.tx.Ended() {
		f.end(s, connstats.WhyRefused)
		return false
	}
	if attached {
		f.attached = true
		f.closePeer()
		f.entry.SetPath(connstats.PathMemory)
		f.entry.Set(connstats.ModeDirect, connstats.WhyNothing)
		s.cfg.Broker.Forget(f.tx.Info().Nonce)
	}
	return attached
}

func (f *outflow) closePeer() {
	if f.peer >= 0 {
		_ = unix.Close(f.peer)
		f.peer = -1
	}
}

// send sends one datagram, or a train. false: it is the kernel's.
//
// +checklocks:f.mu
func (f *outflow) send(b []byte, m datagram.Meta, s *Socket) bool {
	for waited := false; ; {
		switch f.tx.Send(b, m) {
		case datagram.Published:
			f.unsettled, f.waitAt, f.stalled = 0, f.patience, false
			f.counted(len(b))
			s.tell(sentDirect)
			return true
		case datagram.Gone:
			f.end(s, connstats.WhyNothing)
			return false
		case datagram.ByKernel:
			if f.tx.Armed() && f.tx.Settled(shm.Nanotime()) { // it sleeps, and nothing is on its way
				f.unsettled, f.waitAt = 0, f.patience
				return false
			}
			if waited || f.unsettled == 0 || f.unsettled < f.waitAt || !f.settle() {
				return false
			}
			waited = true
		case datagram.NoRoom:
			if !f.room(s) {
				return true // it was dropped, or has nowhere to go
			}
		}
	}
}

// settle waits until the receiver is awake, and has what went by the kernel.
func (f *outflow) settle() bool {
	known := f.tx.Known()
	most, least := settleTime, leastWait
	if !known {
		most, least = firstTime, firstWait
	}
	f.patience = max(f.patience, least)
	start := shm.Nanotime()
	for {
		now := shm.Nanotime()
		if f.tx.Settled(now) && (!f.tx.Armed() || !known) {
			f.patience = max(f.patience/2, leastWait)
			f.waitAt = f.patience
			return true
		}
		if now-start > int64(most) {
			f.patience = min(2*f.patience, mostWait)
			f.waitAt = f.unsettled + f.patience
			return false
		}
		runtime.Gosched()
		schedYield()
	}
}

// schedYield lets another thread of this CPU run.
func schedYield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// room waits for room. false: the datagram was dropped.
//
// +checklocks:f.mu
func (f *outflow) room(s *Socket) bool {
	before, _ := f.tx.Consumed()
	if f.stalled && before == f.stalledAt {
		f.drop(s)
		return false
	}
	f.stalled = false
	start := shm.Nanotime()
	for i := 0; ; i++ {
		n, _ := f.tx.Consumed()
		if n != before || f.tx.Ended() {
			return true
		}
		if i > 64 {
			runtime.Gosched()
			schedYield()
		}
		shm.Pause(1)
		if shm.Nanotime()-start > int64(roomTime) {
			if f.reliable && !over(&s.writeUntil) && !s.left.Load() && !f.tx.HungUp() {
				f.mu.Unlock() // for Close
				time.Sleep(50 * time.Microsecond)
				f.mu.Lock()
				if f.tx != nil {
					continue
				}
				return false
			}
			f.stalled, f.stalledAt = true, before
			f.drop(s)
			return false
		}
	}
}

func (f *outflow) drop(s *Socket) {
	f.tx.Drop()
	s.tell(dropped)
	f.count.Add(segment.SentDemote, 1)
}

func (f *outflow) counted(n int) {
	f.count.Add(segment.SentDirect, uint64(n))
	if n <= 112 {
		f.count.Add(segment.SentVELOLast, 1)
	} else {
		f.count.Add(segment.SentRMAInfo, 1)
	}
}

// drain waits until the receiver has everything.
func (f *outflow) drain(most time.Duration) {
	start := shm.Nanotime()
	for {
		if _, all := f.tx.Consumed(); all || shm.Nanotime()-start > int64(most) || f.tx.Armed() {
			return
		}
		runtime.Gosched()
		schedYield()
	}
}

// orphan sends what is left of a train by the kernel.
func (f *outflow) orphan(s *Socket, b []byte, each int) {
	for ; len(b) > 0; b = b[min(each, len(b)):] {
		p := b[:min(each, len(b))]
		sent := false
		_ = s.cfg.Raw.Write(func(fd uintptr) bool {
			err := unix.Sendto(int(fd), p, unix.MSG_DONTWAIT, s.sockaddr(f.to))
			sent = err == nil
			return err != unix.EAGAIN
		})
		if sent && f.tx != nil {
			f.tx.Sent(1, shm.Nanotime())
		}
	}
}

// sockaddr is an address for the kernel; nil: the socket is connected.
func (s *Socket) sockaddr(to netip.AddrPort) unix.Sockaddr {
	switch {
	case s.cfg.Remote.IsValid():
		return nil
	case s.six:
		return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
}

// Sent says that n datagrams, of all bytes, went to an address by the kernel.
func (s *Socket) Sent(to netip.AddrPort, n, bytes int) {
	if s.left.Load() {
		return
	}
	to = plainAddr(to)
	if f := s.out.find(to); f != nil {
		f.kernel(s, n, bytes)
		return
	}
	if c := s.cfg.Broker; to.Addr().Zone() == "" && c.Receiver(to.Port()) && !to.Addr().IsMulticast() && !to.Addr().IsUnspecified() && !to.Addr().IsLinkLocalUnicast() {
		s.out.count(to, n)
	}
}

// idle reports whether nothing was sent for a second, and there is no flow; false, too, while it is
// in use.
//
// +checklocksignore: it does not know TryLock
func (f *outflow) idle() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	return f.tx == nil && time.Since(f.since) > time.Second
}

// count begins to count datagrams to a receiver.
func (o *outbound) count(to netip.AddrPort, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.to[to] != nil {
		return
	}
	if len(o.to) >= maxRoutes {
		for at, f := range o.to {
			if f.idle() {
				delete(o.to, at)
				break
			}
		}
		if len(o.to) >= maxRoutes {
			return
		}
	}
	o.to[to] = &outflow{to: to, peer: -1, sent: n, since: time.Now(), pause: offerAgain}
	o.some.Store(true)
}

// kernel counts what went by the kernel, and offers a flow when that is worth it.
func (f *outflow) kernel(s *Socket, n, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tx != nil {
		f.tx.Sent(n, shm.Nanotime())
		f.unsettled += n
		f.count.Add(segment.SentShadow, uint64(bytes))
		s.stats[sentShadow].Add(uint64(n))
		f.attach(s)
		return
	}
	now := time.Now()
	if now.Sub(f.since) > time.Second {
		f.sent, f.since = 0, now
	}
	if f.sent += n; f.sent < s.cfg.Offers || now.Before(f.notBefore) {
		return
	}
	f.sent = 0
	f.offer(s, now)
}

// offer offers a flow.
func (f *outflow) offer(s *Socket, now time.Time) {
	f.notBefore = now.Add(f.pause)
	f.pause = min(2*f.pause, offerMost)
	direct, reliable := s.cfg.Send(f.to)
	if !direct || s.look().plain || !s.cfg.Broker.Receiver(f.to.Port()) {
		return
	}
	from, ok := s.source(f.to)
	if !ok || !s.out.room() {
		return
	}
	info := datagram.Info{Nonce: datagram.NewNonce(), From: from, To: f.to}
	seg, err := datagram.Create(info, s.cfg.Ring)
	if err != nil {
		s.out.gone()
		return
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		seg.Retire()
		s.out.gone()
		return
	}
	f.tx, f.peer, f.attached, f.reliable = datagram.NewTx(seg, pair[0], shm.Nanotime()), pair[1], false, reliable
	key := wire.Key{Client: from, Server: f.to}
	f.entry = s.cfg.Broker.Stats().Alloc(connstats.EntryInfo{Key: key, FD: s.fd, Since: now, UDP: true})
	f.count = (*segment.Counters)(f.entry.Counters())
	f.count.Set(segment.RingSize, uint64(seg.Len()))
	f.entry.Set(connstats.ModeTCP, connstats.WhyOffered)
	f.unsettled, f.patience, f.waitAt = 0, leastWait, firstWait
	of := client.Socket{Conn: s.cfg.Raw, UDP: true, Local: from, Remote: f.to}
	err = s.cfg.Broker.Offer(of, info.Nonce, seg.Fd(), f.peer, func(wire.Reason) { f.refused(s, info.Nonce) })
	if err != nil {
		f.end(s, connstats.WhyNoBroker)
		return
	}
	seg.CloseFd()
}

// refused is told by the broker.
func (f *outflow) refused(s *Socket, nonce [16]byte) {
	go func() { // the client's goroutine does not wait
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.tx != nil && f.tx.Info().Nonce == nonce && !f.attached {
			f.end(s, connstats.WhyRefused)
		}
	}()
}

// end ends the flow: what follows goes by the kernel, and it is offered again some time.
func (f *outflow) end(s *Socket, why connstats.Why) {
	if f.tx == nil {
		return
	}
	if f.attached {
		f.pause = offerAgain
	}
	f.closePeer()
	f.tx.Close()
	f.tx, f.attached, f.stalled = nil, false, false
	if why != connstats.WhyNothing {
		f.entry.Set(connstats.ModeDemoted, why)
	}
	f.entry.Free()
	s.out.gone()
}

// room reports whether one flow more may be, and counts it.
func (o *outbound) room() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.flows >= maxFlows {
		return false
	}
	o.flows++
	return true
}

func (o *outbound) gone() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flows--
}

// end ends all flows.
func (o *outbound) end(s *Socket, wait bool, why connstats.Why) {
	o.mu.Lock()
	o.ended = true
	all := make([]*outflow, 0, len(o.to))
	for _, f := range o.to {
		all = append(all, f)
	}
	o.mu.Unlock()
	until := time.Now().Add(leaveTime)
	for _, f := range all {
		f.mu.Lock()
		if f.tx != nil {
			if wait {
				f.drain(time.Until(until))
			}
			if !f.attached {
				s.cfg.Broker.Withdraw(f.tx.Info().Nonce)
			}
			f.end(s, why)
		}
		f.mu.Unlock()
	}
}

// source is the address from which the kernel would send.
func (s *Socket) source(to netip.AddrPort) (from netip.AddrPort, ok bool) {
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
	if err != nil {
		return from, false
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), local.Port()), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), local.Port()), true
	}
	return from, false
}

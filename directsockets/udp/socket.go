package udp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	_ "exnet/internal/linux"
)

// leastTrueSize is what a datagram in the kernel's queue takes of SO_RCVBUF, at least.
const leastTrueSize = 512

// maxFlows is how many flows a socket has in each direction.
const maxFlows = 64

// Config configures a Socket.
type Config struct {
	// Raw lends the descriptor. If it is a Sleeper, too, Leave wakes those who sleep in the
	// kernel's call when there is something for them.
	Raw syscall.RawConn
	// Local is where the socket is bound.
	Local netip.AddrPort
	// Broker is the client of the namespace's broker.
	Broker *client.Client
	// Send and Receive say whether datagrams to this address, or to the socket's own, may be
	// direct, or why not, and whether their sender waits for room. Default: they may, and it does
	// not.
	Send    func(to netip.AddrPort) (why connstats.Why, reliable bool)
	Receive func(at netip.AddrPort) (direct bool)
	// Offers is after how many datagrams to a receiver within a second a flow is offered.
	// Default 4.
	Offers int
	// Explain has the broker's statistics say why no flow is offered.
	Explain bool
	// Spin is how long a receiver looks before it sleeps. 0: not at all.
	Spin time.Duration
	// Ring is the size of the flows' rings, as datagram.Create has it.
	Ring int
}

// Sleeper is a socket in whose reads goroutines sleep.
type Sleeper interface {
	SetReadDeadline(t time.Time) error
}

// Socket is the part of a UDP socket that is not the kernel's.
type Socket struct {
	cfg     Config
	fd      int
	six     bool // an IPv6 socket
	options atomic.Pointer[options]

	left       atomic.Bool  // nothing is direct any more
	plain      atomic.Bool  // and nothing is kept
	readUntil  atomic.Int64 // deadlines, Unix ns; 0: none
	writeUntil atomic.Int64
	deadline   sync.Mutex  // of the kernel's socket, for reads: the program's, or one that has passed
	woken      atomic.Bool // wake has set one that has passed
	stats      [5]atomic.Uint64
	in         inbound
	out        outbound
	mu         sync.Mutex
	announced  *client.Announcement // guarded by mu
	tidies     *time.Timer          // guarded by mu; nil: there were no flows
}

// tidyTime is how often a socket with flows looks for those whose other end is gone, even if
// nothing is sent or received: each keeps the memory of its ring.
const tidyTime = 2 * time.Second

// tidyLater has the socket look for such flows, as long as there are flows.
func (s *Socket) tidyLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.left.Load():
	case s.tidies == nil:
		s.tidies = time.AfterFunc(tidyTime, s.tidy)
	default:
		s.tidies.Reset(tidyTime)
	}
}

func (s *Socket) tidy() {
	if out, in := s.out.tidy(s), s.in.tidy(); out || in {
		s.tidyLater()
	}
}

// options are those of the kernel's socket that matter here.
type options struct {
	unread       bool // since Changed was called; each call has a pointer of its own
	tos, ttl     uint8
	pktinfo      bool // of the two families
	pktinfo6     bool
	recvTOS      bool
	recvTClass   bool
	recvTTL      bool
	recvHopLimit bool
	rcvbuf       uint32 // 0: the system's default
	queue        uint64 // how many datagrams the kernel's queue has room for, at most
	shareable    bool   // another socket may have the address, too
	plain        bool   // there are some that only the kernel knows
}

// New makes a Socket. nil: the socket is one that only the kernel can serve.
func New(cfg Config) *Socket {
	if cfg.Broker == nil || cfg.Raw == nil || !cfg.Local.IsValid() {
		return nil
	}
	if cfg.Offers == 0 {
		cfg.Offers = 4
	}
	if cfg.Send == nil {
		cfg.Send = func(netip.AddrPort) (connstats.Why, bool) { return connstats.WhyNothing, false }
	}
	if cfg.Receive == nil {
		cfg.Receive = func(netip.AddrPort) bool { return true }
	}
	s := &Socket{cfg: cfg, fd: -1}
	_ = cfg.Raw.Control(func(fd uintptr) {
		s.fd = int(fd)
		domain, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil {
			s.fd = -1
		}
		s.six = domain == unix.AF_INET6
	})
	if s.fd < 0 {
		return nil
	}
	s.in.init(s)
	s.out.init()
	return s
}

// Changed says that the program may have changed options of the kernel's socket. With one that only
// the kernel serves, a socket to which flows lead leaves.
func (s *Socket) Changed() {
	s.options.Store(&options{unread: true})
	if !s.in.some.Load() {
		return
	}
	switch o := s.look(); {
	case o.plain:
		s.Leave()
	case o.shareable:
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		s.in.endBells()
	}
}

// look returns the options. Those that are read while Changed is called are read again.
func (s *Socket) look() *options {
	for {
		was := s.options.Load()
		if was != nil && !was.unread {
			return was
		}
		o := new(options)
		if s.cfg.Raw.Control(func(fd uintptr) { o.read(int(fd), s.six) }) != nil {
			o.plain = true
		}
		if s.options.CompareAndSwap(was, o) {
			return o
		}
	}
}

func (o *options) read(fd int, six bool) {
	get := func(level, name int) int {
		v, err := unix.GetsockoptInt(fd, level, name)
		if err != nil {
			return 0
		}
		return v
	}
	o.tos, o.ttl = uint8(get(unix.IPPROTO_IP, unix.IP_TOS)), uint8(get(unix.IPPROTO_IP, unix.IP_TTL))
	o.pktinfo, o.recvTOS = get(unix.IPPROTO_IP, unix.IP_PKTINFO) != 0, get(unix.IPPROTO_IP, unix.IP_RECVTOS) != 0
	o.recvTTL = get(unix.IPPROTO_IP, unix.IP_RECVTTL) != 0
	if six {
		o.pktinfo6, o.recvTClass = get(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO) != 0, get(unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS) != 0
		o.recvHopLimit = get(unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT) != 0
	}
	o.shareable = get(unix.SOL_SOCKET, unix.SO_REUSEADDR) != 0 || get(unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0
	n := get(unix.SOL_SOCKET, unix.SO_RCVBUF)
	if o.queue = uint64(n) / leastTrueSize; n != defaultRcvbuf() {
		o.rcvbuf = uint32(n)
	}
	for _, only := range []struct{ level, name int }{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMP_OLD}, {unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_OLD}, {unix.SOL_SOCKET, unix.SO_TIMESTAMPING_OLD},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMP_NEW}, {unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW}, {unix.SOL_SOCKET, unix.SO_TIMESTAMPING_NEW},
		{unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX}, {unix.SOL_SOCKET, unix.SO_MARK}, {unix.IPPROTO_UDP, unix.UDP_CORK}, {unix.IPPROTO_UDP, unix.UDP_ENCAP},
		{unix.IPPROTO_UDP, unix.UDP_GRO}, {unix.IPPROTO_UDP, unix.UDP_SEGMENT},
		{unix.IPPROTO_IP, unix.IP_RECVOPTS}, {unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR}, {unix.SOL_SOCKET, unix.SO_RXQ_OVFL},
	} {
		o.plain = o.plain || get(only.level, only.name) != 0
	}
	o.plain = o.plain || filtered(fd)
}

// defaultRcvbuf is the SO_RCVBUF of a socket whose program has not set one.
var defaultRcvbuf = sync.OnceValue(func() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return -1
	}
	return n
})

// SetReadDeadline sets that of the kernel's socket, by set, and Receive's. It returns the error of
// set.
func (s *Socket) SetReadDeadline(t time.Time, set func(time.Time) error) error {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	err := set(t)
	if err == nil {
		s.readUntil.Store(nanos(t))
	}
	return err
}

// SetWriteDeadline is told of that of the kernel's socket.
func (s *Socket) SetWriteDeadline(t time.Time) { s.writeUntil.Store(nanos(t)) }

// wakeTime is longer than goroutines take to come back from the kernel's call, unless the program
// keeps one there in a RawConn's function.
const wakeTime = time.Second

// wake wakes those who sleep in the kernel's call while datagrams are kept for them: no bell does,
// as the kernel's datagrams are others' to read from now on. A deadline that has passed ends their
// calls, and Received tells them to look again. It waits until they have, for wakeTime at most, and
// sets the program's deadline again.
func (s *Socket) wake() {
	kernel, ok := s.cfg.Raw.(Sleeper)
	if !ok || !s.in.beginWake() {
		return
	}
	defer s.in.endWake() // when the deadline is the program's again
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.woken.Store(true)
	if kernel.SetReadDeadline(time.Unix(0, 1)) != nil {
		return // it is closed: nobody sleeps
	}
	late := time.NewTimer(wakeTime)
	defer late.Stop()
	for waits := true; waits && s.in.asleep(); {
		select {
		case <-s.in.looked:
		case <-late.C:
			waits = false
		}
	}
	until := time.Time{}
	if at := s.readUntil.Load(); at != 0 {
		until = time.Unix(0, at)
	}
	_ = kernel.SetReadDeadline(until) // as above
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixNano(), 1)
}

// over reports whether a deadline has passed. The kernel's socket says so to the program.
func over(until *atomic.Int64) bool {
	at := until.Load()
	return at != 0 && time.Now().UnixNano() >= at
}

// Leave has everything go by the kernel, for good: another part of the program, or another program,
// uses the descriptor. Until the peers have taken what was sent to them it waits, for leaveTime at
// most.
func (s *Socket) Leave() { s.end(true) }

// Close ends the flows. It comes before the kernel's socket is closed.
func (s *Socket) Close() { s.end(false) }

// Left reports whether one of the two was called: what is sent is the kernel's, with neither Send
// nor Sent.
func (s *Socket) Left() bool { return s.left.Load() }

// Plain reports whether what is received is, too: with neither Receive nor Received.
func (s *Socket) Plain() bool { return s.plain.Load() }

func (s *Socket) end(wait bool) {
	if s.left.Load() || s.left.Swap(true) { // some ask for each datagram
		return
	}
	s.mu.Lock()
	a := s.announced
	s.announced = nil
	if s.tidies != nil {
		s.tidies.Stop()
	}
	s.mu.Unlock()
	if a != nil {
		a.Close()
	}
	why := connstats.WhyNothing
	if wait {
		why = connstats.WhyProgram
	}
	s.out.end(s, wait, why)
	s.in.end(why)
	if wait {
		s.wake()
	}
}

// plainAddr is an address as flows have it.
func plainAddr(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// socketOf is the socket to the broker.
func (s *Socket) socketOf() client.Socket { return client.Socket{Conn: s.cfg.Raw, UDP: true} }

// announce has the broker know that the socket takes flows.
func (s *Socket) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left.Load() {
		return
	}
	// Of no sender would it know whether it is still there, if it may not ask.
	if s.look().plain || !s.cfg.Receive(s.cfg.Local) || mute() == connstats.WhyNoDiag {
		s.in.setup.on(setupExclude)
		return
	}
	if !s.in.setup.on(setupListen) {
		return
	}
	s.announced = s.cfg.Broker.Listen(s.socketOf(), func(wire.Reason) {})
}

// Stats says how a socket's datagrams went.
type Stats struct {
	// SentDirect and ReceivedDirect are those that went through memory, SentShadow and
	// ReceivedShadow those by the kernel, since there were flows to or from the other end.
	SentDirect, ReceivedDirect, SentShadow, ReceivedShadow uint64
	// Dropped are those for which the receiver had no room in memory.
	Dropped uint64
}

// Which of Socket.stats has what.
const (
	sentDirect = iota
	receivedDirect
	sentShadow
	receivedShadow
	dropped
)

// Stats returns the statistics.
func (s *Socket) Stats() Stats {
	n := func(i int) uint64 { return s.stats[i].Load() }
	return Stats{n(sentDirect), n(receivedDirect), n(sentShadow), n(receivedShadow), n(dropped)}
}

// tell counts.
func (s *Socket) tell(i int) { s.stats[i].Add(1) }

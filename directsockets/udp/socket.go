package udp

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	_ "exnet/internal/linux"
)

// leastTrueSize is what a datagram in the kernel's queue takes of SO_RCVBUF, at least.
const leastTrueSize = 512

// maxFlows is how many flows a socket has in each direction.
const maxFlows = 64

// Config configures a Socket.
type Config struct {
	// Raw lends the descriptor.
	Raw syscall.RawConn
	// Local is where the socket is bound.
	Local netip.AddrPort
	// Broker is the client of the namespace's broker.
	Broker *client.Client
	// Send and Receive say whether datagrams to this address, or to the socket's own, may be
	// direct, or why not, and whether their sender waits for room.
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
	stats      struct{ sentDirect, receivedDirect, sentShadow, receivedShadow, dropped atomic.Uint64 }
	in         inbound
	out        outbound
	tidies     atomic.Bool // tidyFlows is due
}

// tidyTime is how often a socket with flows looks for those whose other end is gone, even if
// nothing is sent or received: each keeps the memory of its ring.
const tidyTime = 2 * time.Second

// tidyLater has the socket look for such flows, as long as there are flows.
func (s *Socket) tidyLater() {
	if !s.tidies.Swap(true) {
		time.AfterFunc(tidyTime, s.tidyFlows)
	}
}

func (s *Socket) tidyFlows() {
	s.tidies.Store(false)
	s.in.mu.Lock()
	some := s.in.forgetOver()
	s.in.mu.Unlock()
	if s.out.endGone(s) || some {
		s.tidyLater()
	}
}

// options are those of the kernel's socket that matter here.
type options struct {
	unread     bool // since Changed was called; each call has a pointer of its own
	tos, ttl   uint8
	pktinfo    bool // of the two families
	pktinfo6   bool
	recvTOS    bool
	recvTClass bool
	rcvbuf     uint32 // 0: the system's default
	queue      uint64 // how many datagrams the kernel's queue has room for, at most
	shareable  bool   // another socket may have the address, too
	plain      bool   // there are some that only the kernel knows
}

// New makes a Socket. nil: the socket is one that only the kernel can serve.
func New(cfg Config) *Socket {
	if cfg.Broker == nil || cfg.Raw == nil || !cfg.Local.IsValid() {
		return nil
	}
	cfg.Offers = cmp.Or(cfg.Offers, 4)
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

// Changed says that the program may have changed options of the kernel's socket. With one that
// only the kernel serves, a socket to which flows lead leaves.
func (s *Socket) Changed() {
	s.options.Store(&options{unread: true})
	if !s.in.nonEmpty.Load() {
		return
	}
	switch o := s.currentOptions(); {
	case o.plain:
		s.Leave()
	case o.shareable:
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		s.in.endBells()
	}
}

// currentOptions returns the options. It reads them again if Changed was called since, or
// meanwhile.
func (s *Socket) currentOptions() *options {
	for {
		was := s.options.Load()
		if was != nil && !was.unread {
			return was
		}
		o := new(options)
		if s.cfg.Raw.Control(func(fd uintptr) { o.readFrom(int(fd), s.six) }) != nil {
			o.plain = true
		}
		if s.options.CompareAndSwap(was, o) {
			return o
		}
	}
}

func (o *options) readFrom(fd int, six bool) {
	get := func(level, name int) int {
		v, err := unix.GetsockoptInt(fd, level, name)
		if err != nil {
			return 0
		}
		return v
	}
	o.tos, o.ttl = uint8(get(unix.IPPROTO_IP, unix.IP_TOS)), uint8(get(unix.IPPROTO_IP, unix.IP_TTL))
	o.pktinfo, o.recvTOS = get(unix.IPPROTO_IP, unix.IP_PKTINFO) != 0, get(unix.IPPROTO_IP, unix.IP_RECVTOS) != 0
	if six {
		o.pktinfo6, o.recvTClass = get(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO) != 0, get(unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS) != 0
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
		{unix.IPPROTO_IP, unix.IP_RECVTTL}, {unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT}, {unix.IPPROTO_IP, unix.IP_RECVOPTS}, {unix.IPPROTO_IP, unix.IP_RECVORIGDSTADDR}, {unix.SOL_SOCKET, unix.SO_RXQ_OVFL},
	} {
		o.plain = o.plain || get(only.level, only.name) != 0
	}
	o.plain = o.plain || hasFilter(fd)
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

// SetReadDeadline is told of that of the kernel's socket.
func (s *Socket) SetReadDeadline(t time.Time) { s.readUntil.Store(unixNanos(t)) }

// SetWriteDeadline is told of that of the kernel's socket.
func (s *Socket) SetWriteDeadline(t time.Time) { s.writeUntil.Store(unixNanos(t)) }

func unixNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixNano(), 1)
}

// hasPassed reports whether a deadline has passed. The kernel's socket says so to the program.
func hasPassed(until *atomic.Int64) bool {
	at := until.Load()
	return at != 0 && time.Now().UnixNano() >= at
}

// Leave has everything go by the kernel, for good: another part of the program, or another
// program, uses the descriptor. Until the peers have taken what was sent to them it waits, for
// leaveTime at most.
func (s *Socket) Leave() { s.endFlows(true) }

// Close ends the flows. It comes before the kernel's socket is closed.
func (s *Socket) Close() { s.endFlows(false) }

// Left reports whether one of the two was called: what is sent is the kernel's, with neither
// Send nor Sent.
func (s *Socket) Left() bool { return s.left.Load() }

// Plain reports whether what is received is, too: with neither Receive nor Received.
func (s *Socket) Plain() bool { return s.plain.Load() }

func (s *Socket) endFlows(wait bool) {
	if s.left.Load() || s.left.Swap(true) { // some ask for each datagram
		return
	}
	why := connstats.WhyNothing
	if wait {
		why = connstats.WhyProgram
	}
	s.out.endFlows(s, wait, why)
	s.in.endFlows(wait, why)
	// Who sleeps in the kernel's call has the bell of what is kept: nobody else has the
	// descriptor yet.
	for late := time.Now().Add(leaveTime); wait && s.in.sleepsOverKept() && time.Now().Before(late); {
		time.Sleep(earlyPause)
	}
}

// plainAddr is an address as flows have it.
func plainAddr(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// socketOf is the socket to the broker.
func (s *Socket) socketOf() client.Socket { return client.Socket{Conn: s.cfg.Raw, UDP: true} }

// Stats says how a socket's datagrams went.
type Stats struct {
	// SentDirect and ReceivedDirect are those that went through memory, SentShadow and
	// ReceivedShadow those by the kernel, since there were flows to or from the other end.
	SentDirect, ReceivedDirect, SentShadow, ReceivedShadow uint64
	// Dropped are those for which the receiver had no room in memory.
	Dropped uint64
}

// Stats returns the statistics.
func (s *Socket) Stats() Stats {
	n := &s.stats
	return Stats{n.sentDirect.Load(), n.receivedDirect.Load(), n.sentShadow.Load(), n.receivedShadow.Load(), n.dropped.Load()}
}

package broker

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/internal/ctxend"
	"exnet/internal/logger"
	"exnet/node/rpc"
)

// Limits of a client, and times (SPEC.md, 6).
const (
	maxOffers = 1024
	// helloTime is how long a client may take to say HELLO.
	helloTime = 5 * time.Second
	// maxQueue is how many messages may wait for a client or peer.
	maxQueue = 2048
)

// Config configures a Server. The zero value of a field means its default.
type Config struct {
	// Node is the ID that clients are told.
	Node uint16
	// Addrs are the node's addresses on the fabric, by which the brokers of other nodes know it, 64
	// at the most; SetAddrs changes them. Default: none; connections within the namespace only.
	Addrs []netip.Addr
	// Zone is the index of the interface by which peers are reached: that of their
	// link-local addresses.
	Zone uint32
	// Path is the path of the socket. Default: DefaultPath of the namespace.
	Path string
	// In runs a function in the broker's network namespace. Default: the process's.
	In func(func() error) error
	// NoSocket makes a broker for this process only: for nodes whose TCP is in user
	// space, and so in no namespace of the kernel's.
	NoSocket bool
	// Owner says which node has an address in the fabric's directory; false: none. It must not call
	// the Server. Default: no address has a node.
	Owner func(netip.Addr) (node uint16, ok bool)
	// CheckPeer says why the process at the other end of a connection given to Peer is not the
	// broker of the node that it names. Default: it is believed.
	CheckPeer func(conn *net.UnixConn, node uint16) error
	// Carrier brings connections to nodes of other hosts, and what brokers say to each
	// other (Meet, Hear, Receive). Default: nobody does, and they stay on TCP.
	Carrier Carrier
	// Carried says whether a rule sends a connection to this address through the fabric. It must
	// not call the Server. Default: none is; then connections between hosts stay on TCP, unless
	// RDMA hardware joins the hosts (Meet), and those within a host share memory.
	Carried func(server netip.AddrPort) bool
	// Group has this broker take offers from those of other namespaces in this process, and hand
	// its own to them. Default: it is alone.
	Group *Group
	// Limited gives root's clients the limits of any user, and all clients outside of containers
	// together those of one container. It is for the broker of a container's namespace, whose root
	// is not the host's.
	Limited bool
	// Switch says which connections may be direct, before the Rules of SetRules. Default: all may.
	Switch *Switch
	// Names are those of the container whose namespace this is, by which a Rule of Switch knows it.
	Names []string
	// Log is told about clients that break the rules. Default: nobody.
	Log logger.Logger
}

// Server is a broker.
//
// Concurrency: all methods may be called from many goroutines; Run once.
type Server struct {
	cfg      Config
	ownRules Switch  // see SetRules
	cookie   uint64  // of the namespace
	quotas   *quotas // its Group's, too
	place    *place  // nil: no socket
	routes   *routes
	diag     *diag
	page     *wire.Page
	count    counters
	addrs    atomic.Pointer[[]netip.Addr] // the node's, at most maxAddrs; changed under mu

	mu       sync.Mutex
	closed   bool                  // +checklocks:mu
	sessions map[*session]struct{} // +checklocks:mu
	users    map[owner]*usage      // +checklocks:mu
	// listeners: of this namespace, how many at each port, and where.
	listeners map[uint16]int // +checklocks:mu
	bounds    map[bound]int  // +checklocks:mu
	// receivers: UDP sockets that take flows, by their cookies; udpPorts: how many at each port.
	receivers map[uint64][]*receiver // +checklocks:mu
	udpPorts  map[uint16]int         // +checklocks:mu
	// flows: offers of UDP to be claimed, by the receiver's port.
	flows map[uint16][]*offer // +checklocks:mu
	// announced: those of them that peers can reach.
	announced map[bound]int // +checklocks:mu
	// offers: to be claimed here.
	offers map[wire.Key]*offer // +checklocks:mu
	// waiting: offers to be claimed here.
	waiting expiry // +checklocks:mu
	// handed: offers that peers have.
	handed expiry               // +checklocks:mu
	peers  map[*peer]struct{}   // +checklocks:mu
	byAddr map[netip.Addr]*peer // +checklocks:mu
	// scanning is held while statistics are read, one table at a time. It comes before mu.
	scanning sync.Mutex
	refused  refusals
	// hostsMu comes before mu.
	hostsMu sync.Mutex
	hosts   map[uint16]*host // +checklocks:hostsMu
	// idle: since when there has been no session.
	idle   time.Time  // +checklocks:mu
	setUp  SetUpTimes // +checklocks:mu
	shared shared
	work   sync.WaitGroup // goroutines of sessions and peers
	// told: when the last line was logged.
	told time.Time // +checklocks:mu
	// short: when missing descriptors were last logged.
	short time.Time // +checklocks:mu
	inbox inbox     // of peers in this process
	// strangers: connections without a known owner, and those of peers.
	strangers rpc.Bin
	ctx       context.Context // ends with the Server
	stop      context.CancelFunc
}

// New makes a broker, whose socket exists from now on. Clients are answered when Run is called;
// Close removes it. ErrInUse: another broker serves the namespace.
//
// +checklocksignore: nobody else knows it yet
func New(cfg Config) (s *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = logger.Discard{}
	}
	if cfg.In == nil {
		cfg.In = func(f func() error) error { return f() }
	}
	if cfg.Owner == nil {
		cfg.Owner = func(netip.Addr) (uint16, bool) { return 0, false }
	}
	if cfg.CheckPeer == nil {
		cfg.CheckPeer = func(*net.UnixConn, uint16) error { return nil }
	}
	if cfg.Carried == nil || cfg.Carrier == nil {
		cfg.Carried = func(netip.AddrPort) bool { return false }
	}
	s = &Server{
		cfg:       cfg,
		quotas:    cfg.Group.quotasOf(),
		hosts:     make(map[uint16]*host),
		shared:    shared{past: make(map[netip.Addr]connstats.Total)},
		sessions:  make(map[*session]struct{}),
		users:     make(map[owner]*usage),
		listeners: make(map[uint16]int),
		bounds:    make(map[bound]int),
		receivers: make(map[uint64][]*receiver),
		udpPorts:  make(map[uint16]int),
		flows:     make(map[uint16][]*offer),
		announced: make(map[bound]int),
		offers:    make(map[wire.Key]*offer),
		peers:     make(map[*peer]struct{}),
		byAddr:    make(map[netip.Addr]*peer),
		idle:      time.Now(),
	}
	addrs := slices.Clone(cfg.Addrs[:min(len(cfg.Addrs), maxAddrs)])
	s.addrs.Store(&addrs)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.waiting = expiry{after: wire.OfferTime, why: wire.Expired}
	s.handed = expiry{after: wire.HandTime, why: wire.Unreachable}
	for _, q := range []*expiry{&s.waiting, &s.handed} {
		q.timer = time.AfterFunc(time.Hour, func() { q.endExpired(s) })
		q.timer.Stop()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.page, err = wire.NewPage(); err != nil || cfg.NoSocket {
		return s, err
	}
	err = cfg.In(func() (err error) {
		if s.place, err = takePlace(cfg.Path); err != nil {
			return err
		}
		if s.diag, err = openDiag(); err != nil {
			return err
		}
		s.routes, err = openRoutes()
		return err
	})
	if err != nil {
		return s, err
	}
	s.cookie = s.place.cookie
	cfg.Group.addMember(s)
	return s, nil
}

// Path is the path of the socket; "": there is none.
func (s *Server) Path() string {
	if s.place == nil {
		return ""
	}
	return s.place.path
}

// acceptPause is how long is waited when no connection can be accepted.
const acceptPause = 100 * time.Millisecond

// Run answers clients until ctx is cancelled or Close is called, then returns nil.
func (s *Server) Run(ctx context.Context) error {
	if s.place == nil {
		select {
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		return nil
	}
	defer ctxend.Do(ctx, func() { s.place.ln.Close() })()
	failed := func(err error) { s.cfg.Log.Warn("direct sockets: programs stay on TCP", "reason", err) }
	for conn := range rpc.Accept(ctx, s.place.ln, acceptPause, failed) {
		if s.refused.refuseAgain(s, conn) {
			continue
		}
		if !s.countGoroutine() {
			conn.Close()
			return nil
		}
		go func() {
			defer s.work.Done()
			s.serveClient(conn)
		}()
	}
	return nil
}

// countGoroutine counts a goroutine that Close waits for; false: the Server is closed.
func (s *Server) countGoroutine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

// Close ends the broker and removes its socket. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.cfg.Group.removeMember(s)
	s.stop()
	s.waiting.timer.Stop()
	s.handed.timer.Stop()
	sessions, peers := keysOf(s.sessions), keysOf(s.peers)
	s.mu.Unlock()
	for _, c := range sessions {
		c.endByBroker()
	}
	for _, p := range peers {
		s.dropPeer(p)
	}
	var err error
	if s.place != nil {
		err = s.place.removeSocket()
	}
	s.waitGoroutines()
	s.inbox.close()
	if s.routes != nil {
		s.routes.close()
	}
	if s.diag != nil {
		s.diag.close()
	}
	if s.page != nil {
		s.page.Close()
	}
	return err
}

// endTime is how long Close waits for clients' descriptors to be closed, see trash.
const endTime = 2 * time.Second

// waitGoroutines waits for the goroutines of sessions and peers.
func (s *Server) waitGoroutines() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
	case <-time.After(endTime):
		s.cfg.Log.Warn("direct sockets: a client's socket is slow to close")
	}
}

func keysOf[K comparable, V any](m map[K]V) []K {
	all := make([]K, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	return all
}

// serveClient serves a connection until it ends.
func (s *Server) serveClient(conn *net.UnixConn) {
	out, err := rpc.NewOutbox(conn, maxQueue)
	if err != nil {
		conn.Close()
		return
	}
	c := &session{s: s, out: out, shut: out, since: time.Now(), stats: -1,
		listeners: make(map[uint32]*listener), offers: make(map[wire.Nonce]*offer)}
	defer ctxend.Do(s.ctx, c.endByBroker)()
	defer func() {
		if s.ctx.Err() != nil {
			c.endByBroker()
		}
		out.Abort()
		c.removeClient()
	}()
	err = c.answerClient(conn)
	if errors.Is(err, wire.ErrRule) || errors.Is(err, wire.ErrMessage) {
		s.count.BadClients.Add(1)
	}
	if !rpc.HungUp(err) && s.mayTell() {
		s.cfg.Log.Warn("direct sockets: client disconnected", "program", c.program, "pid", c.pid, "uid", c.uid, "reason", err)
	}
}

// mayTell limits the log to a line a second, so that nobody can fill it.
func (s *Server) mayTell() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.told) < time.Second {
		return false
	}
	s.told = time.Now()
	return true
}

// shortTime is the time between two lines about missing descriptors.
const shortTime = time.Minute

// logLost logs that descriptors could not be received.
func (s *Server) logLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.short.IsZero() || time.Since(s.short) >= shortTime {
		s.short = time.Now()
		s.cfg.Log.Warn("direct sockets: connections stay on TCP", "reason", rpc.ErrNoDescriptors)
	}
}

// Idle is how long there has been no client; 0: there are some.
func (s *Server) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) > 0 {
		return 0
	}
	return time.Since(s.idle)
}

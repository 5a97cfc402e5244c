package pool

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/node/rpc"

	"exnet/memory/lease"
)

// Limits say how much memory a node lends. A limit of 0 means all that it lends.
type Limits struct {
	Lend    int64 // in total; 0: nothing
	PerNode int64 // to all borrowers of one node
	PerUser int64 // to one user of one node
}

// Times of a Server.
const (
	// DefaultRevoke is how long a borrower has to give back what is revoked.
	DefaultRevoke = 5 * time.Second
	// DefaultRenew is how often a node renews the leases of its processes, and DefaultTTL how long
	// a lease of another host stands that nobody renews.
	DefaultRenew = 5 * time.Second
	DefaultTTL   = 30 * time.Second
	// askTime is how long a node may take to answer.
	askTime = 5 * time.Second
)

// Limits of processes.
const (
	// perUser is how many leases the processes of a user may have through a node, or wait for, or
	// have had whose connections are not closed yet.
	perUser = 1024
	// total is the same for all users but root.
	total = 4096
	// perNode is how many leases another node may have of this one, and allNodes all of them: each
	// takes a descriptor here, and of a node of another host a mapping, of which a process has
	// 65530 (vm.max_map_count).
	perNode  = 4096
	allNodes = 16384
)

// Config configures a Server.
type Config struct {
	// Node is the node of the Server.
	Node fabric.NodeID
	// Limits are what the node lends at first.
	Limits Limits
	// MaxTime is how long a lease of this node lasts at most. 0: as long as its borrower lives.
	MaxTime time.Duration
	// Revoke, Renew and TTL are DefaultRevoke, DefaultRenew and DefaultTTL if they are 0.
	Revoke, Renew, TTL time.Duration
	// Dial connects to the Server of another node of this host. nil: there is no other.
	Dial func(fabric.NodeID) (*net.UnixConn, error)
	// CheckPeer returns an error unless the process at the other end is that node. nil: none is.
	CheckPeer func(*net.UnixConn, fabric.NodeID) error
	// Nodes returns the other nodes that may lend. nil: there are none.
	Nodes func() []Neighbor
	// RoundTrip asks a node, and returns how long that took. nil: by the clock.
	RoundTrip func(n fabric.NodeID, ask func()) time.Duration
	// Far reaches the Servers of nodes of other hosts, whose messages Hear gets. nil: there are
	// none.
	Far Far
	// NIC moves data between hosts, with Far.
	NIC *nic.NIC
	// Log gets what the node's owner should know. nil: nothing is logged.
	Log *slog.Logger
}

// Neighbor is another node.
type Neighbor struct {
	Node fabric.NodeID
	Hops int
	Far  bool // it is on another host
}

// Server lends the memory of a node, and borrows for the processes of its host.
//
// Concurrency: all methods may be called from many goroutines.
type Server struct {
	cfg Config
	own *own
	far mover // of cfg.NIC

	askTime time.Duration // how long a node may take to answer

	hub     rpc.Hub
	dialing sync.Mutex // one connection to a peer is made at a time

	mu     sync.Mutex
	limits Limits           // +checklocks:mu
	loans  map[uint64]*loan // +checklocks:mu
	lastID uint64           // +checklocks:mu
	// lent: the bytes of the loans, and of those whose memory is being given back.
	lent int64 // +checklocks:mu
	// returning: of these, the bytes whose memory is being given back. freed is closed, and
	// replaced, whenever some are back.
	returning int64         // +checklocks:mu
	freed     chan struct{} // +checklocks:mu
	// borrowers: processes that have a lease.
	borrowers map[*borrower]struct{}  // +checklocks:mu
	peers     map[fabric.NodeID]*peer // +checklocks:mu
	fars      map[fabric.NodeID]*peer // +checklocks:mu
	// farsOver: the last session with a node of another host that is over.
	farsOver map[fabric.NodeID]uint64 // +checklocks:mu
	count    Stats                    // +checklocks:mu
}

// Stats count what a Server has done.
type Stats struct {
	Granted      uint64 // leases of this node's memory
	Refused      uint64 // that were asked for
	Returned     uint64 // by their borrowers
	Revoked      uint64 // that this node wanted back
	Forced       uint64 // of those, taken without an answer
	Expired      uint64 // whose time was over
	Dropped      uint64 // whose borrower or its node had ended
	Borrowed     uint64 // by processes of this host
	Lost         uint64 // whose lender had ended
	NotBorrowed  uint64 // requests of processes that no node granted
	ChangedLimit uint64
}

// New returns a Server.
func New(cfg Config) *Server {
	for _, d := range []struct {
		t *time.Duration
		d time.Duration
	}{{&cfg.Revoke, DefaultRevoke}, {&cfg.Renew, DefaultRenew}, {&cfg.TTL, DefaultTTL}} {
		if *d.t == 0 {
			*d.t = d.d
		}
	}
	if cfg.RoundTrip == nil {
		cfg.RoundTrip = byClock
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		freed: make(chan struct{}), askTime: askTime,
		cfg: cfg, limits: cfg.Limits, loans: make(map[uint64]*loan), borrowers: make(map[*borrower]struct{}),
		hub:   rpc.Hub{PerAccount: perUser, Total: total},
		peers: make(map[fabric.NodeID]*peer), fars: make(map[fabric.NodeID]*peer), farsOver: make(map[fabric.NodeID]uint64),
	}
	s.own = &own{s, make(map[uint64]*borrower)}
	if err := s.far.init(cfg.NIC); err != nil {
		cfg.Log.Warn("memory: nothing is lent to, or borrowed from, other hosts", "reason", err)
		s.cfg.Far = nil
	}
	return s
}

// SetLimits changes what the node lends. Leases that are there stay.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
	s.count.ChangedLimit++
}

// Limits returns what the node lends.
func (s *Server) Limits() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Close ends all leases: those of this node's memory at once, and those of its processes. It waits
// until the memory has been given back, but not for Process and Peer to return.
func (s *Server) Close() {
	s.hub.End()
	s.mu.Lock()
	for _, p := range s.fars {
		p.Abort()
	}
	for _, l := range s.loans {
		s.applySoonLocked(l, lease.OnLost)
	}
	s.mu.Unlock()
	s.hub.Wait()
	s.far.close()
}

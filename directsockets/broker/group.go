package broker

import (
	"iter"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/wire"
)

// End is the server's end of a connection on this host (package pairing).
type End struct {
	Cookie uint64 // of its socket (SO_COOKIE)
	Netns  uint64 // of its network namespace (SO_NETNS_COOKIE)
	// Local and Remote are its addresses, as it has them; IPv4 is not mapped into IPv6.
	Local, Remote netip.AddrPort
	// First are the sequence numbers of the first bytes of the client and of the server.
	First [2]uint32
}

// Group joins the brokers of many network namespaces in one process. An offer of a client in one
// of them goes to the broker of the namespace in which the kernel has the server's socket,
// whatever networks and translations lie between (SPEC.md, 6.1). A nil Group has no members.
//
// Concurrency: all methods may be called from many goroutines.
type Group struct {
	server func(client uint64) (End, bool)
	quotas *quotas

	// joining comes before a Server's mu.
	joining sync.Mutex
	peers   map[[2]*Server]*peer // +checklocks:joining

	// mu comes after a Server's mu.
	mu      sync.Mutex
	members map[uint64]*Server // +checklocks:mu
	ports   map[uint16]int     // +checklocks:mu
	// services: for each port, the ports to which a translation leads.
	services map[uint16]ports // +checklocks:mu
	// stale: ports that the members' pages do not show correctly yet.
	stale   map[uint16]bool // +checklocks:mu
	showing bool            // +checklocks:mu
	// shown is how many ns of processor time it takes to update a port in all members' pages, as
	// measured lately.
	shown atomic.Int64

	// watching comes after a Server's mu.
	watching sync.Mutex
	// watched is by the cookie of the client's socket.
	watched map[uint64]*watched // +checklocks:watching
}

// ports is a set of them.
type ports map[uint16]struct{}

// pair is the target of an offer whose socket's other end is known.
type pair struct {
	to     *peer
	key    wire.Key // as the server has it
	cookie uint64   // of the server's socket
	client uint64   // cookie of the client's
	first  [2]uint32
}

// NewGroup makes a group. server returns the server's end of the connection of a client's socket,
// of which it is given the cookie; false: it is not known. It must not call a Server.
func NewGroup(server func(client uint64) (End, bool)) *Group {
	return &Group{server: server, quotas: newQuotas(), peers: make(map[[2]*Server]*peer), members: make(map[uint64]*Server),
		ports: make(map[uint16]int), services: make(map[uint16]ports), stale: make(map[uint16]bool), watched: make(map[uint64]*watched)}
}

// quotasOf returns the quotas of all members' clients; a Server without a Group has its own.
func (g *Group) quotasOf() *quotas {
	if g == nil {
		return newQuotas()
	}
	return g.quotas
}

// addMember adds a member. From now on it and the others know each other's listeners, and the
// services that lead to them.
func (g *Group) addMember(s *Server) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[s.cookie] = s
	for port := range g.ports {
		g.staleLocked(port)
	}
	for port := range g.services {
		g.staleLocked(port)
	}
}

// removeMember removes a member. Its listeners leave with their clients.
func (g *Group) removeMember(s *Server) {
	if g == nil {
		return
	}
	g.mu.Lock()
	if g.members[s.cookie] == s {
		delete(g.members, s.cookie)
	}
	g.mu.Unlock()
	// Not from here: who leaves holds its own lock.
	go g.removePeers(s)
}

// removePeers removes the peers of a member that has left the Group.
func (g *Group) removePeers(s *Server) {
	g.joining.Lock()
	defer g.joining.Unlock()
	maps.DeleteFunc(g.peers, func(k [2]*Server, _ *peer) bool { return k[0] == s || k[1] == s })
}

// SetServices says which ports lead to others, because addresses are translated on the way: pairs
// of a port to which clients connect and one at which the server listens. Services of many networks
// may have the same port, and lead to many.
func (g *Group) SetServices(all iter.Seq2[uint16, uint16]) {
	to := make(map[uint16]ports)
	for port, at := range all {
		if to[port] == nil {
			to[port] = make(ports)
		}
		to[port][at] = struct{}{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.services
	g.services = to
	// Only what has changed: one container that has a port translated anew all the time would
	// have all members show all of these.
	for port, at := range to {
		if !maps.Equal(at, before[port]) {
			g.staleLocked(port)
		}
	}
	for port := range before {
		if to[port] == nil {
			g.staleLocked(port)
		}
	}
}

// countListeners counts listeners of a member at a port. It returns the processor time that the
// update of the others' pages will take.
func (g *Group) countListeners(port uint16, by int) time.Duration {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.ports[port]
	if g.ports[port] += by; g.ports[port] == 0 {
		delete(g.ports, port)
	}
	if (before == 0) == (g.ports[port] == 0) {
		return 0
	}
	shown := time.Duration(1)
	g.staleLocked(port)
	for from, to := range g.services {
		if _, ok := to[port]; ok {
			g.staleLocked(from)
			shown++
		}
	}
	return shown * time.Duration(g.shown.Load())
}

// othersAt is how many listeners the other members have at a port, and at those to which it leads.
// The caller itself has own at the port.
func (g *Group) othersAt(own int, port uint16) int {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.ports[port] - own
	for to := range g.services[port] {
		if to != port { // else they are counted already
			n += g.ports[to]
		}
	}
	return n
}

// staleLocked has all members update a port soon, not now: the caller may hold the lock of one.
//
// +checklocks:g.mu
func (g *Group) staleLocked(port uint16) {
	g.stale[port] = true
	if !g.showing {
		g.showing = true
		go g.updatePages()
	}
}

// updatePages brings the members' pages up to date.
func (g *Group) updatePages() {
	for {
		g.mu.Lock()
		ports := g.stale
		g.stale = make(map[uint16]bool)
		members := make([]*Server, 0, len(g.members))
		for _, s := range g.members {
			members = append(members, s)
		}
		if len(ports) == 0 {
			g.showing = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		spent := measureTime(func() {
			for _, s := range members {
				s.mu.Lock()
				if !s.closed {
					for port := range ports {
						s.showPortLocked(port)
					}
				}
				s.mu.Unlock()
			}
		})
		last := g.shown.Load()
		g.shown.Store(last + (int64(spent)/int64(len(ports))-last)/4) // nobody else stores it
	}
}

// pairOf finds where an offer goes by the other end of its client's socket; nil: nowhere, or within
// the namespace without a translation on the way. known is false if nobody knows that end.
func (s *Server) pairOf(o *offer) (p *pair, known bool) {
	g := s.cfg.Group
	if g == nil || o.socket.cookie == 0 {
		return nil, true // there is nothing to know
	}
	end, known := g.server(o.socket.cookie)
	if !known {
		return nil, false
	}
	key := wire.Key{Client: end.Remote, Server: end.Local}
	g.mu.Lock()
	to := g.members[end.Netns]
	g.mu.Unlock()
	if to == nil || to == s && key.Client == o.key.Client && key.Server == o.key.Server {
		return nil, true
	}
	peer, err := g.peerOf(s, to)
	if err != nil { // it is about to end
		return nil, true
	}
	return &pair{to: peer, key: key, cookie: end.Cookie, client: o.socket.cookie, first: end.First}, true
}

// peerOf returns the peer by which one member knows another, and makes them peers if they are not
// yet.
func (g *Group) peerOf(from, to *Server) (*peer, error) {
	g.joining.Lock()
	defer g.joining.Unlock()
	k := [2]*Server{from, to}
	if p := g.peers[k]; p != nil && !p.hasEnded() {
		return p, nil
	}
	p, err := joinServers(from, to)
	if err == nil {
		g.peers[k] = p
	}
	return p, err
}

// hasEnded reports whether the peer has been dropped.
func (p *peer) hasEnded() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.gone
}

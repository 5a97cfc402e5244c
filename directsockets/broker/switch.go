package broker

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
)

// Rule is what an operator has said of some connections. Each field that is set has to fit; the
// zero Rule forbids all.
type Rule struct {
	// Direct: they may be direct. Else they stay on TCP, and go back to it.
	Direct bool `json:"direct"`
	// Share, if not 0, is how many of a hundred connections the Rule is about. Which ones is drawn
	// once for each connection.
	Share int `json:"share,omitempty"`
	// Container is the ID of a container, the beginning of it with at least 12 digits, or its name:
	// an end of the connection is in it.
	Container string `json:"container,omitempty"`
	// Port is the server's, as either end has it.
	Port uint16 `json:"port,omitempty"`
	// To is where the server's address is, as either end has it.
	To netip.Prefix `json:"to,omitzero"`
	// PID is that of a process at an end, in the broker's PID namespace.
	PID int `json:"pid,omitempty"`
}

// minID is how many digits of a container's ID name it.
const minID = 12

// fits reports whether the Rule is about a connection, as far as one of its ends knows.
func (r Rule) fits(e switchEnd, nonce wire.Nonce) bool {
	named := func(name string) bool {
		return name == r.Container || len(r.Container) >= minID && strings.HasPrefix(name, r.Container)
	}
	return (r.Share == 0 || int(binary.LittleEndian.Uint32(nonce[:])%100) < r.Share) &&
		(r.Container == "" || slices.ContainsFunc(e.names, named)) &&
		(r.Port == 0 || r.Port == e.server.Port()) &&
		(!r.To.IsValid() || r.To.Contains(e.server.Addr().WithZone(""))) &&
		(r.PID == 0 || r.PID == e.pid)
}

// switchEnd is an end of a connection, as Rules see it.
type switchEnd struct {
	names  []string // of its container
	server netip.AddrPort
	pid    int
}

// Switch says which connections may be direct. The last Rule that fits counts; where none does,
// they may. A nil Switch has no Rules. The brokers of an agent share one.
//
// Concurrency: all methods may be called from many goroutines.
type Switch struct {
	mu    sync.Mutex
	rules []Rule // +checklocks:mu
}

// maxRules is how many Rules a Switch keeps: each is looked at for each new connection.
const maxRules = 256

// Add adds a Rule. One about everything replaces all before it, and one about the same as others
// replaces those; a Share only other Shares. false: there are too many.
func (s *Switch) Add(r Rule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == (Rule{Direct: r.Direct}) {
		s.rules = nil
		if r.Direct {
			return true
		}
	}
	same := func(o Rule) bool {
		replaced := r.Share == 0 || o.Share != 0
		o.Direct, o.Share = r.Direct, r.Share
		return replaced && o == r
	}
	rules := slices.DeleteFunc(slices.Clone(s.rules), same)
	if len(rules) >= maxRules {
		return false
	}
	s.rules = append(rules, r)
	return true
}

// Rules returns all, the first one first.
func (s *Switch) Rules() []Rule {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rules)
}

// allows reports whether a connection may be direct, as far as an end of it knows.
func (s *Switch) allows(e switchEnd, nonce wire.Nonce) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Backward(s.rules) {
		if r.fits(e, nonce) {
			return r.Direct
		}
	}
	return true
}

// mayOffer reports whether the Switch allows an offer of a client, and mayClaim whether it allows
// that a client takes one.
func (s *Server) mayOffer(o *offer) bool {
	return s.cfg.Switch.allows(switchEnd{s.cfg.Names, o.key.Server, o.from.pid}, o.nonce)
}

func (s *Server) mayClaim(c *session, key wire.Key, o *offer) bool {
	return s.cfg.Switch.allows(switchEnd{s.cfg.Names, key.Server, c.pid}, o.nonce)
}

// Returned is what TakeBack has come to, in connections.
type Returned struct {
	Back int `json:"back"` // that go back to TCP
	// Kept are those that stay direct: their programs could not be told, as they are of an old
	// release, or the broker is not root, or they go to another host.
	Kept int `json:"kept"`
}

// TakeBack has the TCP connections that the Switch forbids go back to TCP, as far as this broker's
// clients have them. What was sent before is read first, so nothing is lost. UDP flows stay: a new
// one is refused.
func (s *Server) TakeBack() Returned {
	back := make(map[wire.Nonce]bool)
	kept := s.takeBack(back)
	return Returned{len(back), kept}
}

// takeBack is TakeBack. It adds the connections that were direct to back, and returns how many stay
// direct, counted at their client's end.
func (s *Server) takeBack(back map[wire.Nonce]bool) (kept int) {
	if len(s.cfg.Switch.Rules()) == 0 {
		return 0
	}
	claimed := s.cfg.Group.claimedBy(s)
	direct := make(map[wire.Key]*connstats.Connection)
	for _, c := range s.Connections() {
		if !c.UDP && c.Mode == connstats.ModeDirect.String() {
			key := wire.Key{Client: c.Local, Server: c.Remote}
			if c.Server {
				key = wire.Key{Client: c.Remote, Server: c.Local}
			}
			if before := direct[key]; before == nil || before.Server {
				direct[key] = &c
			}
		}
	}
	seen := make(map[wire.Key]attempt)
	c := newCutter(procDir, segment.BackSwitch)
	c.begin()
	for p := range s.processes() {
		told := c.cut(p, maxMaps, func(i segment.Info) bool {
			key := keyOf(i, claimed)
			forbidden := !s.cfg.Switch.allows(switchEnd{s.cfg.Names, key.Server, p.pid}, i.Nonce)
			if !forbidden && seen[key] != takenBack {
				seen[key] = takenNot
			}
			return forbidden
		})
		for _, i := range told {
			key := keyOf(i, claimed)
			seen[key] = takenBack
			if direct[key] != nil {
				back[i.Nonce] = true
			}
		}
	}
	for key, c := range direct {
		if !c.Server && seen[key] == takenUnseen && !s.cfg.Switch.allows(switchEnd{s.cfg.Names, key.Server, c.PID}, wire.Nonce{}) {
			kept++
		}
	}
	return kept
}

// attempt is what became of a connection in TakeBack.
type attempt uint8

const (
	takenUnseen attempt = iota // no segment of it was found, or its ends do not heed it
	takenNot                   // the Switch allows it
	takenBack
)

// keyOf returns the ends of a connection: those of the segment's header or, of a connection in
// claimed, those that the server's end has, which translations may have made others.
func keyOf(i segment.Info, claimed map[wire.Nonce]wire.Key) wire.Key {
	if as, ok := claimed[i.Nonce]; ok {
		return as
	}
	return wire.Key{Client: i.Client, Server: i.Server}
}

// TakeBack is that of all members. A connection between two of them counts once.
func (g *Group) TakeBack() Returned {
	g.mu.Lock()
	members := slices.Collect(maps.Values(g.members))
	g.mu.Unlock()
	back, kept := make(map[wire.Nonce]bool), 0
	for _, s := range members {
		kept += s.takeBack(back)
	}
	return Returned{len(back), kept}
}

// processes are those of the clients.
func (s *Server) processes() map[process]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[process]bool)
	for c := range s.sessions {
		if c.pid > 0 {
			all[process{c.pid, c.owner}] = true
		}
	}
	return all
}

// claimedBy returns the watched connections whose server's end belongs to a client of s, with the
// addresses that this end has.
func (g *Group) claimedBy(s *Server) map[wire.Nonce]wire.Key {
	all := make(map[wire.Nonce]wire.Key)
	if g == nil {
		return all
	}
	g.watching.Lock()
	defer g.watching.Unlock()
	for _, w := range g.watched {
		if h := w.ends[1]; h.s == s && w.ends[0].s != s {
			all[w.nonce] = wire.Key{Client: h.remote, Server: h.local}
		}
	}
	return all
}

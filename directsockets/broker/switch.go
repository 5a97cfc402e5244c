package broker

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"

	"golang.org/x/sys/unix"
)

// Rule allows or forbids that some connections are direct. Each field that is set has to match; the
// zero Rule forbids all.
type Rule struct {
	// Direct: they may be direct. Else they stay on TCP, and go back to it.
	Direct bool `json:"direct"`
	// Share, if not 0, is how many of a hundred connections the Rule is about. Which ones is drawn
	// once for each connection.
	Share int `json:"share,omitempty"`
	// Container is the ID of a container, the beginning of it with at least 12 digits, or its name:
	// an end of the connection is in its network namespace, which a pod's containers share.
	Container string `json:"container,omitempty"`
	// Port is the server's, as either end has it; of a flow of datagrams it may be the sender's.
	Port uint16 `json:"port,omitempty"`
	// To is where the server's address is, as either end has it; of a flow it may be the sender's.
	To netip.Prefix `json:"to,omitzero"`
	// PID is that of a process at an end, in the broker's PID namespace.
	PID int `json:"pid,omitempty"`
}

// minID is how many digits of a container's ID name it.
const minID = 12

// isMatching reports whether the Rule is about a connection, as far as one of its ends knows.
func (r *Rule) isMatching(e switchEnd, draw uint32) bool {
	return (r.Share == 0 || int(draw%100) < r.Share) && r.In(e.names) && (r.PID == 0 || r.PID == e.pid) &&
		(r.coversServer(e.server) || e.sender.IsValid() && r.coversServer(e.sender))
}

// coversServer reports whether the Rule is about servers there.
func (r *Rule) coversServer(server netip.AddrPort) bool {
	return (r.Port == 0 || r.Port == server.Port()) && (!r.To.IsValid() || r.To.Contains(server.Addr().WithZone("")))
}

// Fits reports whether the Rule is about a connection of a container with these names.
func (r *Rule) Fits(names []string, c *connstats.Connection) bool {
	return r.isMatching(endOf(names, c, c.PID), c.Draw)
}

// String writes the Rule as the flags of exn-tun direct.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString("off")
	if r.Direct {
		b.Reset()
		b.WriteString("on")
	}
	say := func(so bool, name string, value any) {
		if so {
			fmt.Fprintf(&b, " --%s %v", name, value)
		}
	}
	say(r.Container != "", "container", r.Container)
	say(r.Port != 0, "port", r.Port)
	say(r.To.IsValid(), "to", r.To)
	say(r.PID != 0, "pid", r.PID)
	say(r.Share != 0, "share", r.Share)
	return b.String()
}

// In reports whether the Rule can be about a connection of the container with these names.
func (r *Rule) In(names []string) bool {
	pod := podOf(r.Container)
	named := func(name string) bool {
		return name == r.Container || len(r.Container) >= minID && strings.HasPrefix(name, r.Container) || pod != "" && podOf(name) == pod
	}
	return r.Container == "" || slices.ContainsFunc(names, named)
}

// podOf is NAMESPACE/POD/ of the name of a pod's container, NAMESPACE/POD/CONTAINER, or of its
// sandbox, NAMESPACE/POD; "": it is neither.
func podOf(name string) string {
	switch strings.Count(name, "/") {
	case 1:
		return name + "/"
	case 2:
		return name[:strings.LastIndexByte(name, '/')+1]
	}
	return ""
}

// switchEnd is an end of a connection, as Rules see it.
type switchEnd struct {
	names  []string // of its container
	server netip.AddrPort
	pid    int
	sender netip.AddrPort // of a flow of datagrams, which goes to server: its answers are a flow back
}

// endOf is the end that a connection is, of a process.
func endOf(names []string, c *connstats.Connection, pid int) switchEnd {
	e := switchEnd{names: names, server: c.ServerEnd(), pid: pid}
	if c.UDP {
		e.sender = c.Local
		if c.Server {
			e.sender = c.Remote
		}
	}
	return e
}

// offeredEnd is the end of a connection that is offered, or claimed by a key.
func (s *Server) offeredEnd(o *offer, key wire.Key, pid int) switchEnd {
	e := switchEnd{names: s.cfg.Names, server: key.Server, pid: pid}
	if o.flow != nil {
		e.sender = key.Client
	}
	return e
}

// Switch says which connections may be direct. The last Rule that fits counts; where none does,
// they may. A nil Switch has no Rules. The brokers of an agent share one.
//
// Concurrency: all methods may be called from many goroutines.
type Switch struct {
	mu    sync.Mutex
	rules []*Rule // +checklocks:mu
	// heldRules: those of Hold, which come before the rules.
	heldRules []*Rule // +checklocks:mu
}

// How many Rules a Switch keeps, and how many it holds: each is looked at for each new connection.
const (
	maxRules = 256
	maxHeld  = 16
)

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
	return s.replaceLocked(func(o Rule) bool {
		replaced := r.Share == 0 || o.Share != 0
		o.Direct, o.Share = r.Direct, r.Share
		return replaced && o == r
	}, []Rule{r})
}

// Set replaces all Rules that name a container, "": all Rules, by others, which come last. false:
// there are too many.
func (s *Switch) Set(container string, rules []Rule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaceLocked(func(r Rule) bool { return container == "" || r.Container == container }, rules)
}

// replaceLocked replaces some Rules by others, which come last. false: there are too many.
//
// +checklocks:s.mu
func (s *Switch) replaceLocked(some func(Rule) bool, others []Rule) bool {
	var rules []*Rule
	for _, r := range s.rules {
		if !some(*r) {
			rules = append(rules, r)
		}
	}
	if len(rules)+len(others) > maxRules {
		return false
	}
	for i := range others {
		rules = append(rules, &others[i])
	}
	s.rules = rules
	return true
}

// Hold keeps the connections that r is about on TCP until release, whatever the Rules say. false:
// there are too many.
func (s *Switch) Hold(r Rule) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heldRules) >= maxHeld {
		return nil, false
	}
	r.Direct = false
	s.heldRules = append(s.heldRules, &r)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.heldRules = slices.DeleteFunc(s.heldRules, func(o *Rule) bool { return o == &r })
	}, true
}

// Rules returns all, the first one first, and those of Hold.
func (s *Switch) Rules() (rules, held []Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Concat(s.rules, s.heldRules) {
		rules = append(rules, *r)
	}
	n := len(s.rules)
	return rules[:n:n], rules[n:]
}

// decidingRule returns the Rule that decides about a connection; nil: none fits.
func (s *Switch) decidingRule(e switchEnd, draw uint32) *Rule {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rules := range [...][]*Rule{s.heldRules, s.rules} {
		for _, r := range slices.Backward(rules) {
			if r.isMatching(e, draw) {
				return r
			}
		}
	}
	return nil
}

// SetRules replaces the Rules that come with the Server's container. They count where none of the
// Switch fits. false: there are too many.
func (s *Server) SetRules(rules []Rule) bool { return s.ownRules.Set("", rules) }

// decidingRule returns the Rule that decides about a connection, of the Switch or else the
// container's own. nil: none does.
func (s *Server) decidingRule(e switchEnd, draw uint32) (rule *Rule, own bool) {
	if r := s.cfg.Switch.decidingRule(e, draw); r != nil {
		return r, false
	}
	return s.ownRules.decidingRule(e, draw), true
}

// mayBeDirect reports whether a connection may be direct, as far as an end of it knows. draw is
// that of its segment's nonce (connstats.Draw).
func (s *Server) mayBeDirect(e switchEnd, draw uint32) bool {
	r, _ := s.decidingRule(e, draw)
	return r == nil || r.Direct
}

// decidedBy names the Rule that decides about a connection of a client, "": none does.
func (s *Server) decidedBy(c *connstats.Connection) string {
	r, own := s.decidingRule(endOf(s.cfg.Names, c, c.PID), c.Draw)
	switch {
	case r == nil:
		return ""
	case own:
		return r.String() + " # of the pod"
	}
	return r.String()
}

// mayOffer reports whether the Switch allows an offer of a client, and mayClaim whether it allows
// that a client takes one.
func (s *Server) mayOffer(o *offer) bool {
	return s.mayBeDirect(s.offeredEnd(o, o.key, o.from.pid), connstats.Draw(o.nonce))
}

func (s *Server) mayClaim(c *session, key wire.Key, o *offer) bool {
	return s.mayBeDirect(s.offeredEnd(o, key, c.pid), connstats.Draw(o.nonce))
}

// Returned is what Switched has come to, in connections and flows.
type Returned struct {
	Back int `json:"back"` // that go back to TCP, or to the kernel's UDP
	// Kept are those that stay direct: their programs are of an old release.
	Kept int `json:"kept"`
}

// Switched tells the clients which of their connections and flows the Switch forbids, and which it
// allows again. What was sent before is read first, so nothing is lost.
func (s *Server) Switched() Returned {
	r := newReturning()
	s.sumSwitched(r)
	return r.sumUp()
}

// returning are the connections and flows that Switched has found direct, each once though both
// ends are here.
type returning struct {
	back map[uint64]bool
	// kept has the client's address of each connection that stays direct at an end with an old
	// library, which does not say what segment it has.
	kept map[netip.AddrPort]bool
}

func newReturning() *returning {
	return &returning{make(map[uint64]bool), make(map[netip.AddrPort]bool)}
}

func (r *returning) sumUp() Returned { return Returned{len(r.back), len(r.kept)} }

// sumSwitched is Switched.
func (s *Server) sumSwitched(r *returning) {
	s.scanning.Lock()
	defer s.scanning.Unlock()
	s.mu.Lock()
	clients := s.tablesLocked()
	s.mu.Unlock()
	left := newBudgets()
	for _, t := range clients {
		left.readWith(t.owner, func(budget *int) { s.switchTable(t, budget, r) })
		_ = unix.Close(t.fd)
	}
}

// switchTable is switched for one client.
func (s *Server) switchTable(t clientTable, budget *int, r *returning) {
	for _, c := range connstats.Read(t.fd, connstats.MaxEntries, budget) {
		server := c.ServerEnd()
		off := !s.mayBeDirect(endOf(s.cfg.Names, &c, t.pid), c.Draw)
		direct := c.Mode == connstats.ModeDirect.String()
		switch {
		case !c.Heeds:
			if off && direct {
				r.kept[c.ClientEnd()] = true
			}
		case off != c.Off && connstats.SetOff(t.fd, &c, off) == nil && off && direct:
			r.back[uint64(c.Draw)|uint64(server.Port())<<32] = true
		}
	}
}

// Switched is that of all members. A connection between two of them counts once.
func (g *Group) Switched() Returned {
	g.mu.Lock()
	members := slices.Collect(maps.Values(g.members))
	g.mu.Unlock()
	r := newReturning()
	for _, s := range members {
		s.sumSwitched(r)
	}
	return r.sumUp()
}

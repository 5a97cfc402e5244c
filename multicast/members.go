package multicast

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"time"

	"exnet/fabric"
)

// Defaults of Config (RFC 3376 section 8, RFC 3810 section 9).
const (
	DefaultQueryInterval = 125 * time.Second
	DefaultResponseTime  = 10 * time.Second
	DefaultRobustness    = 2
)

// Bounds on what one host can make a node remember.
const (
	// MaxGroups is the number of groups that a node can be a member of.
	MaxGroups = 4096
	// maxSources is the number of sources of one group that are told apart.
	// With more, the group counts as joined for all sources, until the host
	// says otherwise or the membership lapses.
	maxSources = 64
)

// startupQuery is the part of the query interval after which the first query
// is due (RFC 3376 section 8.6).
const startupQuery = 4

// Config configures Members. The zero value of a field means its default.
type Config struct {
	// Registry is notified of joins and leaves. Required.
	Registry Registry
	// QueryInterval is the time between general queries. Default 125 s.
	QueryInterval time.Duration
	// ResponseTime is how long the host may take to answer one. Default 10 s.
	ResponseTime time.Duration
	// Robustness is how many queries may be lost, plus one; 1 to 7. Default 2.
	Robustness int
	// Shared says that several hosts report, as behind a bridge: none speaks for the others,
	// so a group or source that one leaves is left when it lapses.
	Shared bool
}

func (c Config) withDefaults() (Config, error) {
	if c.QueryInterval == 0 {
		c.QueryInterval = DefaultQueryInterval
	}
	if c.ResponseTime == 0 {
		c.ResponseTime = min(DefaultResponseTime, c.QueryInterval)
	}
	if c.Robustness == 0 {
		c.Robustness = DefaultRobustness
	}
	switch {
	case c.Registry == nil:
		return c, errors.New("multicast: Config.Registry is nil")
	case c.QueryInterval < 0 || c.ResponseTime < 0 || c.ResponseTime > c.QueryInterval:
		return c, fmt.Errorf("multicast: query interval %v, response time %v; use positive times, the second not over the first", c.QueryInterval, c.ResponseTime)
	case c.Robustness < 1 || c.Robustness > 7:
		return c, fmt.Errorf("multicast: robustness %d; use 1 to 7", c.Robustness)
	}
	return c, nil
}

// lapse is the time after its last report at which a membership is over: the
// group membership interval (RFC 3376 section 8.4).
func (c Config) lapse() time.Duration {
	return time.Duration(c.Robustness)*c.QueryInterval + c.ResponseTime
}

// Stats are the counters of Members.
type Stats struct {
	Groups   int    // groups that the node is a member of now
	Reports  uint64 // reports, leave and done messages taken in
	Bad      uint64 // of these, damaged ones
	Joins    uint64 // groups joined
	Leaves   uint64 // groups left because the host said so
	Lapses   uint64 // groups left because the host said nothing
	Refused  uint64 // records about more groups than MaxGroups
	Failures uint64 // joins and leaves that the Registry refused
	Queries  uint64 // general queries that were due
}

// Members keeps the memberships of one node.
//
//	           report for any source                source named
//	no member ───────────────────────► EXCLUDE   ┌──────────────► INCLUDE
//	    ▲  └─────────────────────────────────────┘   ▲               │
//	    │      leave, lapse               │          │ to INCLUDE{S} │ last source
//	    └─────────────────────────────────┴──────────┘               │ blocked, lapses
//	    └────────────────────────────────────────────────────────────┘
//
// Time is given: the caller reads its clock.
//
// Concurrency: all methods may be called from many goroutines. The Registry is
// called with a lock held.
type Members struct {
	cfg Config

	mu sync.Mutex
	// +checklocks:mu
	groups map[netip.Addr]*membership
	// +checklocks:mu
	query time.Time // when the next general query is due
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	stats Stats
}

// membership is what the host said about a group.
type membership struct {
	exclude time.Time                // EXCLUDE until then; zero: INCLUDE
	sources map[netip.Addr]time.Time // INCLUDE: each until then
	joined  bool                     // the Registry knows
}

// NewMembers makes the memberships of a node, none. Close ends them.
func NewMembers(cfg Config, now time.Time) (*Members, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Members{
		cfg:    cfg,
		groups: make(map[netip.Addr]*membership),
		query:  now.Add(cfg.QueryInterval / startupQuery),
	}, nil
}

// Packet looks at an IP packet of the host. If it is a membership report, or a
// leave or done message, it is taken in and true is returned: the packet goes
// no further. It borrows packet until return.
func (m *Members) Packet(now time.Time, packet []byte) bool {
	records, isReport, err := ReadReport(packet)
	if !isReport {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Reports++
	if err != nil {
		m.stats.Bad++
		return true
	}
	for _, r := range records {
		m.recordLocked(now, r)
	}
	return true
}

// recordLocked takes in what the host says about a group.
//
// +checklocks:m.mu
func (m *Members) recordLocked(now time.Time, r Record) {
	if m.closed || Everybody(r.Group) {
		return
	}
	g := m.groups[r.Group]
	if g == nil {
		if r.Kind == BlockSources || r.Kind == ChangeToInclude && len(r.Sources) == 0 {
			return
		}
		if len(m.groups) >= MaxGroups {
			m.stats.Refused++
			return
		}
		g = &membership{}
		m.groups[r.Group] = g
	}
	if m.cfg.Shared {
		g.mergeRecord(r, now.Add(m.cfg.lapse()))
	} else {
		g.applyRecord(r, now.Add(m.cfg.lapse()))
	}
	m.settleLocked(r.Group, g, &m.stats.Leaves)
}

// applyRecord changes a membership as a record says (RFC 3376 section 6.4, for a
// single host); what it reports holds until the time given.
func (g *membership) applyRecord(r Record, until time.Time) {
	switch r.Kind {
	case IsExclude, ChangeToExclude:
		g.exclude, g.sources = until, nil
	case IsInclude, ChangeToInclude:
		if len(r.Sources) == 0 || !g.exclude.IsZero() {
			g.exclude, g.sources = time.Time{}, nil
		}
		g.allowSources(r.Sources, until)
	case AllowSources:
		if g.exclude.IsZero() {
			g.allowSources(r.Sources, until)
		}
	case BlockSources:
		for _, s := range r.Sources {
			delete(g.sources, s)
		}
	}
}

// mergeRecord is apply for one of several hosts: what it does not want another may.
func (g *membership) mergeRecord(r Record, until time.Time) {
	switch r.Kind {
	case IsExclude, ChangeToExclude:
		g.exclude, g.sources = until, nil
	case IsInclude, ChangeToInclude, AllowSources:
		if g.exclude.IsZero() {
			g.allowSources(r.Sources, until)
		}
	}
}

func (g *membership) allowSources(sources []netip.Addr, until time.Time) {
	if len(g.sources)+len(sources) > maxSources {
		g.exclude, g.sources = until, nil
		return
	}
	if g.sources == nil {
		g.sources = make(map[netip.Addr]time.Time)
	}
	for _, s := range sources {
		g.sources[s] = until
	}
}

// settleLocked makes the Registry agree with a membership, and forgets one that
// is over, which left counts.
//
// +checklocks:m.mu
func (m *Members) settleLocked(group netip.Addr, g *membership, left *uint64) {
	if !g.exclude.IsZero() || len(g.sources) > 0 {
		if g.joined {
			return
		}
		if _, err := m.cfg.Registry.Join(group); err != nil {
			m.stats.Failures++ // the next report tries again
			return
		}
		g.joined = true
		m.stats.Joins++
		return
	}
	delete(m.groups, group)
	if !g.joined {
		return
	}
	*left++
	if err := m.cfg.Registry.Leave(group); err != nil {
		m.stats.Failures++
	}
}

// Tick does what is due: it ends the memberships that lapse, and reports
// whether the host is to be asked by a general query. next is when to call it
// again, unless a report comes in between.
func (m *Members) Tick(now time.Time) (query bool, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if query = !now.Before(m.query); query {
		m.query = now.Add(m.cfg.QueryInterval)
		m.stats.Queries++
	}
	next = m.query
	for group, g := range m.groups {
		end, over := g.endLapsed(now)
		if over {
			m.settleLocked(group, g, &m.stats.Lapses)
		} else if end.Before(next) {
			next = end
		}
	}
	return query, next
}

// endLapsed ends what has lapsed, and returns when something does next, or that
// nothing is left.
func (g *membership) endLapsed(now time.Time) (next time.Time, over bool) {
	if !g.exclude.IsZero() && !now.Before(g.exclude) {
		g.exclude = time.Time{}
	}
	next = g.exclude
	for s, end := range g.sources {
		if !now.Before(end) {
			delete(g.sources, s)
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next, next.IsZero()
}

// Queries returns the general queries for the host: one of IGMP and, if src is
// a valid link-local address, one of MLD from it.
func (m *Members) Queries(src netip.Addr) [][]byte {
	c := m.cfg
	queries := [][]byte{IGMPQuery(c.ResponseTime, c.QueryInterval, c.Robustness)}
	if src.IsValid() {
		queries = append(queries, MLDQuery(src, c.ResponseTime, c.QueryInterval, c.Robustness))
	}
	return queries
}

// All yields the groups that the node is a member of, in ascending order, with
// the fabric group of each.
func (m *Members) All() iter.Seq2[netip.Addr, fabric.GroupID] {
	m.mu.Lock()
	var groups []netip.Addr
	for group, g := range m.groups {
		if g.joined {
			groups = append(groups, group)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(groups, netip.Addr.Compare)
	return func(yield func(netip.Addr, fabric.GroupID) bool) {
		for _, group := range groups {
			if g, ok := m.cfg.Registry.Lookup(group.AsSlice()); ok && !yield(group, g) {
				return
			}
		}
	}
}

// Stats returns the counters.
func (m *Members) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	for _, g := range m.groups {
		if g.joined {
			s.Groups++
		}
	}
	return s
}

// Close leaves all groups. Later reports change nothing. It is idempotent.
func (m *Members) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var errs []error
	for group, g := range m.groups {
		if g.joined {
			errs = append(errs, m.cfg.Registry.Leave(group))
		}
	}
	clear(m.groups)
	return errors.Join(errs...)
}

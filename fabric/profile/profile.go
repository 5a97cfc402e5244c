// Package profile counts the messages and transfers of a NIC before they are cut into
// packets: by pair of nodes and VPIDs, with their sizes, and multicasts separately.
//
// # Architecture
//
//	velo.Endpoint.Send ──▶ Tally.Add         a comparison, for most messages
//	velo, to a group ────▶ Profile.Multicast
//	rma.Endpoint ────────▶ Profile.Request, Transfer
//	                            │
//	                  Profile.Flows, Multicasts ─▶ crossbar.Wire, control, JSON
//
// A NIC without a profile reads one number per message. A node counts what it
// sends, and both directions of the GETs that it starts, so that no two nodes of a
// fabric count the same message.
//
// A sender counts the messages of each flow anyway, for its credit. So a flow's most
// frequent size needs no counter: its count is that total minus the messages of all
// other sizes.
//
// # Concurrency
//
// All methods may be called from many goroutines. A reader does not stop senders.
//
// # Limits
//
// A pair keeps up to 1024 different sizes of RMA transfers; further sizes are rounded
// up to a power of two, also for Wire. A message that enters a flow while the profile
// is read, begins or ends may be missing, or count with the flow's usual size.
package profile

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// MaxMessage is the longest VELO message, in bytes.
const MaxMessage = 120

// maxSizes is how many different sizes of a pair's transfers are kept.
const maxSizes = 1024

// Pair is the two ends of a flow, and the flow's class.
type Pair struct {
	Src     fabric.NodeID `json:"src"`
	SrcVPID fabric.VPID   `json:"src_vpid"`
	Dst     fabric.NodeID `json:"dst"`
	DstVPID fabric.VPID   `json:"dst_vpid"`
	Class   fabric.Class  `json:"class,omitempty"`
}

func (p Pair) compare(o Pair) int {
	return cmp.Or(cmp.Compare(p.Src, o.Src), cmp.Compare(p.Dst, o.Dst), cmp.Compare(p.SrcVPID, o.SrcVPID), cmp.Compare(p.DstVPID, o.DstVPID), cmp.Compare(p.Class, o.Class))
}

// common is how many messages of a size make it the usual one of a flow.
const common = 64

// sizes counts messages by size.
type sizes [MaxMessage + 1]uint64

// Tally counts the VELO messages of a flow by size, between Begin and End. The sender
// itself counts all messages of the flow in total.
type Tally struct {
	// state is 0, or countAll, or countAll and the usual size, which Add does not count. So Add
	// takes the same path with and without a profile.
	state    atomic.Uint64
	messages atomic.Pointer[messages]
}

// countAll says that all sizes are counted except the one in the lower half.
const countAll = 0xffffffff << 32

// Add counts a message of n bytes, 1 to MaxMessage, which is in the total already.
func (t *Tally) Add(n int) {
	if s := t.state.Load(); (uint32(s)^uint32(n))&uint32(s>>32) != 0 {
		t.count(n)
	}
}

func (t *Tally) count(n int) {
	m := t.messages.Load()
	if m == nil || m.counts[n].Add(1) != common {
		return
	}
	m.profile.mu.Lock()
	defer m.profile.mu.Unlock()
	if m.usual == 0 && t.messages.Load() == m { // End was not called meanwhile
		m.usual = n
		t.state.Store(countAll | uint64(n))
	}
}

// AddClass counts a message of n bytes of a class, which is in the total already.
func (t *Tally) AddClass(c fabric.Class, n int) {
	m := t.messages.Load()
	if m == nil {
		return
	}
	m.other.Add(1)
	pair := m.pair
	pair.Class = c
	m.profile.mu.Lock()
	defer m.profile.mu.Unlock()
	s := m.profile.pairs[pair]
	if s == nil {
		s = new(sizes)
		m.profile.pairs[pair] = s
	}
	s[n]++
}

// Skip says that one in the total is not a message between the pair.
func (t *Tally) Skip() {
	if m := t.messages.Load(); m != nil {
		m.other.Add(1)
	}
}

// Begin counts in p from now on, as messages between a pair. The caller makes one call
// of Begin or End at a time.
func (t *Tally) Begin(p *Profile, pair Pair, total *atomic.Uint64) {
	t.End()
	m := &messages{profile: p, pair: pair, total: total, base: total.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[m] = struct{}{}
	if p.pairs[pair] == nil {
		p.pairs[pair] = new(sizes)
	}
	t.messages.Store(m)
	t.state.Store(countAll)
}

// End ends the counting. What was counted stays in the profile.
func (t *Tally) End() {
	m := t.messages.Load()
	if m == nil {
		return
	}
	m.profile.mu.Lock()
	defer m.profile.mu.Unlock()
	t.messages.Store(nil)
	t.state.Store(0)
	delete(m.profile.open, m)
	m.addTo(m.profile.pairs[m.pair])
}

// messages are the counters of a flow between Begin and End.
type messages struct {
	profile *Profile
	pair    Pair
	total   *atomic.Uint64
	base    uint64 // total at Begin
	other   atomic.Uint64
	counts  [MaxMessage + 1]atomic.Uint64
	usual   int // the size that is not counted, or 0; guarded by profile.mu
}

// addTo adds the counts so far to to. The caller holds m.profile.mu.
func (m *messages) addTo(to *sizes) {
	counted := m.other.Load()
	for n := range m.counts {
		c := m.counts[n].Load()
		to[n] += c
		counted += c
	}
	if n := m.usual; n > 0 {
		to[n] += uint64(max(0, int64(m.total.Load()-m.base-counted)))
	}
}

// transfers are the RMA transfers of a pair, by size.
type transfers struct {
	sizes map[uint64]uint64
	empty uint64 // packets without data: requests of GETs, refusals
}

// group is the key of a multicast's counters.
type group struct {
	src     fabric.NodeID
	vpid    fabric.VPID
	dstVPID fabric.VPID
	group   fabric.GroupID
	members string
}

// Profile counts from the moment when it is made.
type Profile struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[*messages]struct{}
	// +checklocks:mu
	pairs map[Pair]*sizes // counts of flows that have ended
	// +checklocks:mu
	transfers map[Pair]*transfers
	// +checklocks:mu
	groups map[group]*multicasts
}

type multicasts struct {
	members []fabric.NodeID
	sizes
}

// New returns a profile that has counted nothing.
func New() *Profile {
	return &Profile{
		open: make(map[*messages]struct{}), pairs: make(map[Pair]*sizes),
		transfers: make(map[Pair]*transfers), groups: make(map[group]*multicasts),
	}
}

// Multicast counts a message of n bytes to the members of a group. It does not keep
// members.
func (p *Profile) Multicast(src fabric.NodeID, vpid, to fabric.VPID, g fabric.GroupID, members []fabric.NodeID, n int) {
	if len(members) == 0 {
		return
	}
	key := group{src, vpid, to, g, fmt.Sprint(members)}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.groups[key]
	if m == nil {
		m = &multicasts{members: slices.Clone(members)}
		p.groups[key] = m
	}
	m.sizes[n]++
}

// Request counts a packet without data from Src to Dst: the request of a GET.
func (p *Profile) Request(pair Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairLocked(pair).empty++
}

// Transfer counts n bytes of RMA data from Src to Dst; 0 is a refusal.
func (p *Profile) Transfer(pair Pair, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.pairLocked(pair)
	size := uint64(n)
	if n == 0 {
		t.empty++
		return
	}
	if _, ok := t.sizes[size]; !ok && len(t.sizes) >= maxSizes {
		size = 1 << bits.Len64(size-1)
	}
	t.sizes[size]++
}

// +checklocks:p.mu
func (p *Profile) pairLocked(pair Pair) *transfers {
	t := p.transfers[pair]
	if t == nil {
		t = &transfers{sizes: make(map[uint64]uint64)}
		p.transfers[pair] = t
	}
	return t
}

// Size is how many messages had a size in bytes.
type Size struct {
	Size  uint64 `json:"size"`
	Count uint64 `json:"count"`
}

// Units of a Flow.
const (
	VELO = "velo"
	RMA  = "rma"
)

// Flow is the traffic from one end to another through one unit.
type Flow struct {
	Pair
	Unit  string `json:"unit"`
	Sizes []Size `json:"sizes"` // ascending
	// Empty is the number of packets of the RMA unit without data.
	Empty uint64 `json:"empty,omitempty"`
}

// Messages returns the number of messages.
func (f Flow) Messages() (n uint64) {
	for _, s := range f.Sizes {
		n += s.Count
	}
	return n
}

// Bytes returns the number of bytes in all messages.
func (f Flow) Bytes() (n uint64) {
	for _, s := range f.Sizes {
		n += s.Size * s.Count
	}
	return n
}

// Multicast is the traffic of an endpoint to a group, for one set of members.
type Multicast struct {
	Src     fabric.NodeID   `json:"src"`
	SrcVPID fabric.VPID     `json:"src_vpid"`
	DstVPID fabric.VPID     `json:"dst_vpid"`
	Group   fabric.GroupID  `json:"group"`
	Members []fabric.NodeID `json:"members"`
	Sizes   []Size          `json:"sizes"` // one for each call, however many members
}

func (s *sizes) listSizes() (list []Size) {
	for n, c := range s {
		if c > 0 {
			list = append(list, Size{uint64(n), c})
		}
	}
	return list
}

// Flows returns the traffic between pairs so far, in order. Pairs without traffic are
// left out.
func (p *Profile) Flows() (list []Flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[Pair]*sizes, len(p.pairs))
	for pair, s := range p.pairs {
		all[pair] = new(*s)
	}
	for m := range p.open {
		m.addTo(all[m.pair])
	}
	for pair, m := range all {
		if s := m.listSizes(); s != nil {
			list = append(list, Flow{Pair: pair, Unit: VELO, Sizes: s})
		}
	}
	for pair, t := range p.transfers {
		f := Flow{Pair: pair, Unit: RMA, Sizes: []Size{}, Empty: t.empty}
		for size, count := range t.sizes {
			f.Sizes = append(f.Sizes, Size{size, count})
		}
		slices.SortFunc(f.Sizes, func(a, b Size) int { return cmp.Compare(a.Size, b.Size) })
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Flow) int { return cmp.Or(a.compare(b.Pair), cmp.Compare(a.Unit, b.Unit)) })
	return list
}

// Multicasts returns the traffic to groups so far.
func (p *Profile) Multicasts() (list []Multicast) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, m := range p.groups {
		list = append(list, Multicast{Src: g.src, SrcVPID: g.vpid, DstVPID: g.dstVPID, Group: g.group, Members: m.members, Sizes: m.listSizes()})
	}
	slices.SortFunc(list, func(a, b Multicast) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.SrcVPID, b.SrcVPID), cmp.Compare(a.Group, b.Group), cmp.Compare(a.DstVPID, b.DstVPID),
			slices.Compare(a.Members, b.Members))
	})
	return list
}

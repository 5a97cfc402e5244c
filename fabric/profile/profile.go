// Package profile counts who sends how much to whom, before a NIC cuts it into
// packets: by pair of nodes and VPIDs, with the sizes, and multicasts apart.
//
// # Architecture
//
//	velo.Endpoint.Send ──▶ Messages.Add      one atomic addition, for the size
//	velo, to a group ────▶ Profile.Multicast
//	rma.Endpoint ────────▶ Profile.Request, Transfer
//	                            │
//	                  Profile.Flows, Multicasts ─▶ crossbar.Wire, control, JSON
//
// A NIC without a profile looks at one pointer for each message. A node counts what
// it sends, and both directions of the GETs that it starts, so that no two nodes of
// a fabric count the same.
//
// # Concurrency
//
// All methods may be called from many goroutines. Reading goes on while others count.
//
// # Limits
//
// Sizes of RMA transfers are kept one by one up to 1024 of a pair; the rest are
// counted as the next larger power of two, which counts for Wire, too.
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

// maxSizes is how many sizes of a pair's transfers are kept apart.
const maxSizes = 1024

// Pair is the two ends of a flow.
type Pair struct {
	Src     fabric.NodeID `json:"src"`
	SrcVPID fabric.VPID   `json:"src_vpid"`
	Dst     fabric.NodeID `json:"dst"`
	DstVPID fabric.VPID   `json:"dst_vpid"`
}

func (p Pair) compare(o Pair) int {
	return cmp.Or(cmp.Compare(p.Src, o.Src), cmp.Compare(p.Dst, o.Dst), cmp.Compare(p.SrcVPID, o.SrcVPID), cmp.Compare(p.DstVPID, o.DstVPID))
}

// Messages are the VELO messages of a pair, by size.
type Messages [MaxMessage + 1]atomic.Uint64

// Add counts a message of n bytes, 0 to MaxMessage.
func (m *Messages) Add(n int) { m[n].Add(1) }

// transfers are the RMA transfers of a pair, by size.
type transfers struct {
	sizes map[uint64]uint64
	empty uint64 // packets without data: requests of GETs, refusals
}

// group is what is told apart of multicasts.
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
	messages map[Pair]*Messages
	// +checklocks:mu
	transfers map[Pair]*transfers
	// +checklocks:mu
	groups map[group]*multicasts
}

type multicasts struct {
	members []fabric.NodeID
	Messages
}

// New returns a profile that has counted nothing.
func New() *Profile {
	return &Profile{messages: make(map[Pair]*Messages), transfers: make(map[Pair]*transfers), groups: make(map[group]*multicasts)}
}

// Messages returns the counters of a pair.
func (p *Profile) Messages(pair Pair) *Messages {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.messages[pair]
	if m == nil {
		m = new(Messages)
		p.messages[pair] = m
	}
	return m
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
	m.Add(n)
}

// Request counts a packet without data on its way from Src to Dst: the request of a
// GET.
func (p *Profile) Request(pair Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairLocked(pair).empty++
}

// Transfer counts n bytes of RMA on their way from Src to Dst; 0 is a refusal.
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

// Flow is what has gone from one end to another through one unit.
type Flow struct {
	Pair
	Unit  string `json:"unit"`
	Sizes []Size `json:"sizes"` // ascending
	// Empty are packets of the RMA unit without data.
	Empty uint64 `json:"empty,omitempty"`
}

// Messages is how many there were.
func (f Flow) Messages() (n uint64) {
	for _, s := range f.Sizes {
		n += s.Count
	}
	return n
}

// Bytes is how many there were in all messages.
func (f Flow) Bytes() (n uint64) {
	for _, s := range f.Sizes {
		n += s.Size * s.Count
	}
	return n
}

// Multicast is what an endpoint has sent to a group while that had the same members.
type Multicast struct {
	Src     fabric.NodeID   `json:"src"`
	SrcVPID fabric.VPID     `json:"src_vpid"`
	DstVPID fabric.VPID     `json:"dst_vpid"`
	Group   fabric.GroupID  `json:"group"`
	Members []fabric.NodeID `json:"members"`
	Sizes   []Size          `json:"sizes"` // one for each call, however many members
}

func (m *Messages) sizes() (list []Size) {
	for n := range m {
		if c := m[n].Load(); c > 0 {
			list = append(list, Size{uint64(n), c})
		}
	}
	return list
}

// Flows returns all that was counted so far between pairs, in order. Pairs without
// traffic are left out.
func (p *Profile) Flows() (list []Flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair, m := range p.messages {
		if s := m.sizes(); s != nil {
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

// Multicasts returns what has gone to groups so far.
func (p *Profile) Multicasts() (list []Multicast) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, m := range p.groups {
		list = append(list, Multicast{Src: g.src, SrcVPID: g.vpid, DstVPID: g.dstVPID, Group: g.group, Members: m.members, Sizes: m.sizes()})
	}
	slices.SortFunc(list, func(a, b Multicast) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.SrcVPID, b.SrcVPID), cmp.Compare(a.Group, b.Group), cmp.Compare(a.DstVPID, b.DstVPID),
			slices.Compare(a.Members, b.Members))
	})
	return list
}

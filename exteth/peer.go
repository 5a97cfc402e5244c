package exteth

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
)

// peer is what a Port knows of one other node.
type peer struct {
	node fabric.NodeID

	mu    sync.Mutex
	wants bool                  // guarded by mu; a send was refused because lent was full
	lent  map[atu.NLA]*TxBuffer // guarded by mu; outstanding sends by the address of their last RMA packet

	deaf bool // guarded by Port.tx; group frames do not wait for its credit
	bell bool // guarded by Port.tx; the next Flush interrupts it

	// The rest belongs to the poller.
	unicast, group assembly
	transfers      int      // GETs under way
	waiting        []Advert // adverts that wait for one of these to end
}

// errShare says that a peer holds its share of the buffers: try again when it has
// fetched some.
var errShare = errors.New("exteth: the peer holds its share of the buffers")

// lendBuffer opens b for the peer, and returns the address of its frame. It returns
// errShare if the peer has limit buffers already.
func (p *peer) lendBuffer(b *TxBuffer, limit int) (start atu.NLA, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lent) >= limit {
		p.wants = true
		return 0, errShare
	}
	nla, err := b.region.Lend(p.node)
	if err != nil {
		return 0, fmt.Errorf("exteth: lend buffer: %w", err)
	}
	start = nla + (Headroom - EthernetHeaderLen)
	p.lent[rma.LastFragment(start, len(b.Frame()))] = b
	return start, nil
}

// endLoan ends the loan of the buffer whose last RMA packet is at last. It returns
// nil if there is none, or if a GET reads it now. freed says that a send that was
// refused may be tried again.
func (p *peer) endLoan(last atu.NLA, limit int) (b *TxBuffer, freed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b = p.lent[last]
	if b == nil || !b.region.Revoke() {
		return nil, false
	}
	delete(p.lent, last)
	freed = p.wants && len(p.lent) <= limit/2
	if freed {
		p.wants = false
	}
	return b, freed
}

// lateLoans returns the keys in lent of the buffers whose deadline has passed, the oldest first.
func (p *peer) lateLoans(now int64) []atu.NLA {
	p.mu.Lock()
	defer p.mu.Unlock()
	var late []atu.NLA
	for last, b := range p.lent {
		if b.deadline <= now {
			late = append(late, last)
		}
	}
	slices.SortFunc(late, func(a, b atu.NLA) int { return cmp.Compare(p.lent[a].deadline, p.lent[b].deadline) })
	return late
}

// peerTable finds the peer of a node ID by two array look-ups, in segments as
// EXTOLL's own routing tables are (thesis section 5.4.5.2).
type peerTable struct {
	segments [peerSegments]atomic.Pointer[peerSegment]
}

const (
	peerSegments    = 64
	peersPerSegment = 1 << 16 / peerSegments
)

type peerSegment [peersPerSegment]atomic.Pointer[peer]

// peerOf returns the peer of a node. It makes the peer on first use.
func (t *peerTable) peerOf(n fabric.NodeID) *peer {
	if s := t.segments[n/peersPerSegment].Load(); s != nil {
		if p := s[n%peersPerSegment].Load(); p != nil {
			return p
		}
	}
	return t.addPeer(n)
}

func (t *peerTable) addPeer(n fabric.NodeID) *peer {
	slot := &t.segments[n/peersPerSegment]
	slot.CompareAndSwap(nil, new(peerSegment))
	entry := &slot.Load()[n%peersPerSegment]
	entry.CompareAndSwap(nil, &peer{node: n, lent: make(map[atu.NLA]*TxBuffer)})
	return entry.Load()
}

// eachPeer calls fn for every peer so far.
func (t *peerTable) eachPeer(fn func(*peer)) {
	for i := range t.segments {
		s := t.segments[i].Load()
		if s == nil {
			continue
		}
		for j := range s {
			if p := s[j].Load(); p != nil {
				fn(p)
			}
		}
	}
}

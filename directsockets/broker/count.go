package broker

import (
	"iter"
	"sync/atomic"
	"time"

	fields "exnet/internal/counter"
)

// ServerStats are the counters of a Server.
type ServerStats struct {
	Offers            uint64 // segments that programs here offered
	OffersRefused     uint64 // of these, refused at once: no direct listener, or too many
	OffersExpired     uint64 // of these, not claimed in time
	Claimed           uint64 // of these, claimed by the other end
	NotOwners         uint64 // messages that showed the wrong socket
	BadSegments       uint64 // offers refused: no segment of that connection, or no doorbell
	BadClients        uint64 // programs disconnected because they broke the rules
	AddrConflicts     uint64 // addresses that a peer's broker claimed and that belong to another node
	RefusedPeers      uint64 // connections refused because the process is not the broker of the node that it names
	PeerOffersRefused uint64 // offers of peers' programs refused
	ListenersRefused  uint64 // listeners refused: the client or its user has too many
	NetworksCut       uint64 // direct connections of programs here that went back to TCP because their network was cut
	StatisticsUnread  uint64 // statistics of ended clients that were not added up: too many waited
}

type counters struct {
	Offers, OffersRefused, OffersExpired, Claimed, NotOwners, BadSegments, BadClients, AddrConflicts, RefusedPeers, PeerOffersRefused, ListenersRefused, NetworksCut, StatisticsUnread atomic.Uint64
}

// All yields the counters by name.
func (s ServerStats) All() iter.Seq2[string, uint64] { return fields.All(s) }

// Stats returns the counters.
func (s *Server) Stats() (st ServerStats) {
	fields.Load(&s.count, &st)
	return st
}

// SetUpBounds are the upper bounds of the buckets of SetUpTimes but the last.
var SetUpBounds = [...]time.Duration{
	20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond,
	time.Second, 5 * time.Second,
}

// SetUpTimes counts how long it took from the OFFER of a program here until its CLAIM was granted,
// on another node until this broker heard of that. Meanwhile the connection works, over TCP.
type SetUpTimes struct {
	Counts [len(SetUpBounds) + 1]uint64 `json:"counts"` // by SetUpBounds; the last: longer
	Sum    time.Duration                `json:"sum_ns"`
}

func (t *SetUpTimes) addTime(d time.Duration) {
	i := 0
	for i < len(SetUpBounds) && d > SetUpBounds[i] {
		i++
	}
	t.Counts[i]++
	t.Sum += d
}

// SetUpTimes returns those of all offers that were claimed.
func (s *Server) SetUpTimes() SetUpTimes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setUp
}

// setUpLocked counts an offer of a program here that was claimed.
//
// +checklocks:s.mu
func (s *Server) setUpLocked(o *offer) {
	s.count.Claimed.Add(1)
	s.setUp.addTime(time.Since(o.made))
	s.meetLocked(o.from, o.key.Server.Addr())
}

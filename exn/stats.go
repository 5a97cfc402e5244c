package exn

import (
	"iter"
	"sync/atomic"

	"exnet/exteth"
	"exnet/fabric/nic"
	"exnet/internal/counter"
	"exnet/napi"
)

// Stats are the counters of an Interface and of what lies below it.
type Stats struct {
	Counters
	Port exteth.Stats
	NAPI napi.Stats
	NIC  nic.Stats
}

// Counters are the interface's own counters.
type Counters struct {
	TxUnknownMAC uint64 // dropped: the destination MAC address is not one of this fabric
	TxNoMembers  uint64 // dropped: no other node is a member of the IP multicast group
	TxTooLong    uint64 // dropped: a frame over the MTU that needs no segmentation
	TxTooShort   uint64 // dropped: a frame without a whole Ethernet header
	TxStalled    uint64 // dropped: the peer takes no frames, or has no link, and its queue is full
	TxAway       uint64 // frames that waited for the next link to their peer
	TxStalls     uint64 // times that a peer, or members of a group, took no frames for StallTime
	TxStops      uint64 // times that a full queue stopped the interface
	TxFlooded    uint64 // frames sent to all nodes, as their destination's node is not known
	RxUnlearned  uint64 // frames whose source was not learned: its node already has 1024 stations
	RxForged     uint64 // dropped: the source MAC address is another node's, a group's, or cut off
}

// All yields the counters by name.
func (c Counters) All() iter.Seq2[string, uint64] { return counter.All(c) }

type counters struct {
	TxUnknownMAC, TxNoMembers, TxTooLong, TxTooShort, TxStalled, TxAway, TxStalls, TxStops, TxFlooded, RxUnlearned, RxForged atomic.Uint64
}

// Stats returns the counters. Traffic continues meanwhile, so they need not agree exactly.
func (i *Interface) Stats() Stats {
	s := Stats{Port: i.port.Stats(), NAPI: i.napi.Stats(), NIC: i.cfg.NIC.Stats()}
	counter.Load(&i.stats, &s.Counters)
	return s
}

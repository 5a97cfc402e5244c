package relay

import (
	"iter"
	"sync/atomic"

	"exnet/internal/counter"
)

// Stats are the counters of an Engine.
type Stats struct {
	Connections      uint64 // that there are now
	Opened           uint64 // connections that programs here have offered to other hosts
	Accepted         uint64 // connections that programs of other hosts have offered here
	Attached         uint64 // of both, those that both programs took
	Refused          uint64 // offers of other hosts refused: too many, too large, or no memory
	MessagesSent     uint64 // of programs' queues
	MessagesReceived uint64
	BytesSent        uint64 // of programs' data, by VELO and RMA
	BytesReceived    uint64
	Puts             uint64 // that have ended
	PutsFailed       uint64
	Overruns         uint64 // PUTs, also of batches, repeated because a peer had no room for them
	Batches          uint64 // PUTs of messages that had gathered
	BatchesReceived  uint64
	Lost             uint64 // connections reset because their node was lost
	Resumed          uint64 // times that a connection went on after its session had ended
	Breaches         uint64 // connections reset because a program or a node broke the protocol
	Strays           uint64 // messages of processes of other nodes, which are not for the Engine
	Stale            uint64 // messages of sessions that are over here
	NoCredit         uint64 // messages that had to wait for credit
	Held             uint64 // packets of a shadow that waited for what was said before
	HeldDropped      uint64 // packets that should have waited and were dropped: too many
	EarlyDropped     uint64 // packets of a shadow from another node that may have overtaken its program's data
	Fences           uint64 // times that a node was asked whether all has arrived
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct {
	Connections, Opened, Accepted, Attached, Refused, MessagesSent, MessagesReceived, BytesSent, BytesReceived, Puts, PutsFailed, Overruns, Batches, BatchesReceived, Lost, Resumed, Breaches, Strays, Stale, NoCredit, Held, HeldDropped, EarlyDropped, Fences atomic.Uint64
}

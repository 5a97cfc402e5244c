package exteth

import (
	"iter"
	"sync/atomic"

	"exnet/internal/counter"
)

// Stats are the counters of a Port since it was opened. TX leaves the host, RX
// enters it.
type Stats struct {
	TxEager      uint64 // frames sent as VELO messages to one node
	TxRendezvous uint64 // frames advertised for a GET
	TxGroup      uint64 // frames sent as VELO multicast messages
	TxBytes      uint64 // bytes of all these frames
	TxAgain      uint64 // sends refused for now: no credit, or the peer holds its share of the buffers
	TxNoBuffer   uint64 // times that no buffer was free
	TxBadSize    uint64 // dropped: shorter than an Ethernet header or over the maximum
	TxBadGroup   uint64 // dropped: a group frame that needs segmentation
	TxEagerCut   uint64 // eager frames sent in part: the mailbox was full, or the peer went away
	TxNoRoute    uint64 // the fabric has no such node, or it is down: its frames wait, or are dropped
	TxDeaf       uint64 // times that a member of a group had no credit and was left out from then on
	TxMissed     uint64 // members that did not get a frame of TxGroup whole, because they were left out
	TxTimeout    uint64 // dropped: advertised, but not fetched in time
	TxNotRead    uint64 // advertised, but the peer or its link went away: they wait for its next link, or are dropped

	RxEager      uint64 // frames received as VELO messages
	RxRendezvous uint64 // frames received by a GET
	RxGroup      uint64 // frames received as VELO multicast messages
	RxBytes      uint64 // bytes of all these frames
	RxRefused    uint64 // dropped: the layer above returned an error
	RxGetFailed  uint64 // dropped: the GET failed
	RxIncomplete uint64 // dropped: a message of an eager frame is missing
	RxOrphan     uint64 // messages that continue no frame
	RxBadMessage uint64 // messages of unknown type
	RxBadAdvert  uint64 // impossible adverts
	RxBadSize    uint64 // dropped: wrong length
	RxBadOffload uint64 // dropped: offload metadata does not fit the frame
	RxNoTransfer uint64 // times that an advert waited for a free transfer
	RxExcess     uint64 // dropped: the peer advertised more frames than it may

	Unmatched uint64 // notifications that belong to no transfer
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct {
	TxEager, TxRendezvous, TxGroup, TxBytes, TxAgain, TxNoBuffer, TxBadSize,
	TxBadGroup, TxEagerCut, TxNoRoute, TxDeaf, TxMissed, TxTimeout, TxNotRead,
	RxEager, RxRendezvous, RxGroup, RxBytes, RxRefused, RxGetFailed, RxIncomplete,
	RxOrphan, RxBadMessage, RxBadAdvert, RxBadSize, RxBadOffload, RxNoTransfer,
	RxExcess, Unmatched atomic.Uint64
}

// Stats returns the counters.
func (p *Port) Stats() (s Stats) {
	counter.Load(&p.stats, &s)
	return s
}

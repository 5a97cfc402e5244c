package segment

import (
	"sync/atomic"

	"exnet/internal/shm"
)

// Counters are those of a connection in the statistics of its process (SPEC 6.3);
// (*Counters)(shm.Words(mem, off, CounterWords)) is a view into its page. Each
// word is written by one user of an End at a time and read by anybody.
type Counters [CounterWords]atomic.Uint64

// Words of Counters.
const (
	SentDirect     = iota // bytes
	ReceivedDirect        // bytes
	SentShadow            // bytes; counted by the user of the End
	ReceivedShadow        // bytes; counted by the user of the End
	SentVELO              // messages, from here on
	SentVELOLast
	SentRMAInfo
	SentRMAAvail
	SentShutdown
	SentDemote
	ReceivedVELO
	ReceivedVELOLast
	ReceivedRMAInfo
	ReceivedRMAAvail
	ReceivedShutdown
	ReceivedDemote
	RingUsed   // bytes of the outbound ring
	RingSize   // bytes
	Sleeps     // counted by the user of the End
	WakeUps    // sent
	SpinsFound // counted by the user of the End
	SpinsVain  // counted by the user of the End
	ZCopySent  // bytes
	ZCopyReceived
	CounterWords
)

// Add counts. It is for a word that one goroutine writes at a time.
func (c *Counters) Add(word int, n uint64) {
	shm.Release(&c[word], c[word].Load()+n)
}

// Set sets a word.
func (c *Counters) Set(word int, n uint64) { shm.Release(&c[word], n) }

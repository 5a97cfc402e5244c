package segment

import (
	"math"
	"sync/atomic"

	"exnet/foreign"
	"exnet/internal/shm"
)

// pages has which pages of its queue TX may give back: an idle connection keeps few
// (SPEC 2.3).
type pages struct {
	turn   uint64 // the count of messages at which to look next
	turned uint64 // when that was done last, in ticks
	kept   uint64 // the first page, counted from the beginning, that was not given back
}

const (
	pageSlots = shm.PageSize / foreign.SlotSize
	// settled is how many messages are in a page by when the peer may have said that it has
	// consumed those before.
	settled = 2
	// slow is in ticks, about 0.4 ms: what a page of messages takes if little is sent.
	slow = 1 << 20
	// apart is in ticks, about 3 ms: oftener, giving back costs a process more than 1 %.
	apart = 1 << 23
	// busyPage is in ticks, about 0.8 ms: a process that fills a page oftener gives none back.
	busyPage = 1 << 21
	// busyMost is in ticks, about 13 ms, after which what it sent in a burst is forgotten.
	busyMost = 1 << 25
)

// busy is until when this process is busy, in ticks: a page filled and pages given back count for
// a time each.
var busy atomic.Int64

// mayGive says, when a page of a queue of this process has been filled, whether it may give pages
// back now; quiet: the connection sends little. That takes some 30 us and more, as both ends fault
// them in again, and of many busy connections each is quiet.
func mayGive(now int64, quiet bool) bool {
	last := busy.Load()
	may := quiet && last <= now
	until := max(last, now)
	if may {
		until += apart
	} else {
		until += busyPage
	}
	return busy.CompareAndSwap(last, min(until, now+busyMost)) && may
}

// giveBack gives back the pages of the queue but the one that is being written, if
// little is sent and all messages in them are consumed. It belongs to TX.
func (e *End) giveBack() {
	t, p := &e.tx, &e.tx.pages
	page, n, now := t.sent/pageSlots, uint64(len(t.queue)/pageSlots), shm.Ticks()
	lap := uint32(t.sent>>t.shift) + 1 // in a page of zeros is lap 0
	quiet := now != 0 && int64(now-p.turned) >= slow && lap != 0 && lap != math.MaxUint32
	switch {
	case n < 2:
		p.turn = math.MaxUint64
		return
	case quiet && (!e.readCredit() || t.consumed < page*pageSlots):
		p.turn = t.sent + settled
		return
	}
	if p.turn, p.turned = (page+1)*pageSlots+settled, now; !mayGive(int64(now), quiet) {
		return
	}
	if page-p.kept >= n {
		p.kept = page - n + 1
	}
	for p.kept < page {
		at := p.kept % n
		run := min(page-p.kept, n-at)
		if !e.seg.giveBack(e.side, int(at), int(run)) {
			p.turn = math.MaxUint64 // never again
			return
		}
		p.kept += run
	}
}

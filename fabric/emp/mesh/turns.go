package mesh

import (
	"container/heap"
	"maps"
	"slices"
	"time"

	"exnet/fabric"
)

// turn has the nodes that one member reports, or those that this node has met. The turns are served
// in rotation, so that one member's reports do not delay another's.
type turn struct {
	teller fabric.NodeID
	met    bool                     // it has the nodes that were met, and no teller
	told   map[fabric.NodeID]*entry // the nodes that the teller reports
	queue  queue                    // those that wait, by the time of their next attempt
	dials  int                      // under way
	due    time.Time                // when the next attempt is due, at the rate of dialPause
}

// queue is a heap of entries.
type queue []*entry

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	return a.try.next.Before(b.try.next) || a.try.next.Equal(b.try.next) && a.Node < b.Node
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queueIndex, q[j].queueIndex = i, j
}
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.queueIndex = len(*q)
	*q = append(*q, e)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.queueIndex = -1
	return e
}

// turns returns the turns in which a node waits. The nodes that were met come first, then the
// tellers in the order of their IDs, beginning after the last one that was served.
func (b *book) turns() []*turn {
	ids := slices.Sorted(maps.Keys(b.tellers))
	i, _ := slices.BinarySearch(ids, b.last+1)
	all := []*turn{b.met}
	for _, id := range slices.Concat(ids[i:], ids[:i]) {
		all = append(all, b.tellers[id])
	}
	return slices.DeleteFunc(all, func(t *turn) bool { return len(t.queue) == 0 })
}

// takeFromTurn takes the node that is to be dialed now from the queue of a turn; nil: none.
func (b *book) takeFromTurn(now time.Time, t *turn) *entry {
	for len(t.queue) > 0 {
		e := t.queue[0]
		switch {
		case now.Sub(e.heard) > forget:
			b.removeEntry(e)
			continue
		case now.Before(e.try.next):
			b.dueAt(e.try.next)
			return nil
		case b.dials >= maxDials || !t.met && t.dials >= tellerDials:
			return nil // the end of an attempt (dialed) resets nextDue
		case !t.met && t.due.Sub(now) > dialBurst*dialPause:
			b.dueAt(t.due.Add(-dialBurst * dialPause))
			return nil
		}
		heap.Pop(&t.queue)
		return e
	}
	return nil
}

// noteDialing notes that an entry, which is in no queue, is dialed.
func (b *book) noteDialing(now time.Time, e *entry) target {
	t := e.turn
	if !t.met {
		if t.due.Before(now) {
			t.due = now
		}
		t.due = t.due.Add(dialPause)
		b.last = t.teller
	}
	t.dials++
	b.dials++
	e.try.dialing = true
	// Round its addresses, as some may be reached from elsewhere only.
	at := e.endpoints()
	e.Endpoint = at[(slices.Index(at, e.Endpoint)+1)%len(at)]
	return target{seed: -1, node: e.Node, endpoint: e.Endpoint, turn: t}
}

// queueEntry puts an entry that is to be dialed into the queue of its turn, at its place.
func (b *book) queueEntry(e *entry) {
	switch {
	case e.up || e.try.dialing:
	case e.queueIndex < 0:
		heap.Push(&e.turn.queue, e)
	default:
		heap.Fix(&e.turn.queue, e.queueIndex)
	}
}

// leaveQueue takes an entry out of the queue, if it is in one.
func (e *entry) leaveQueue() {
	if e.queueIndex >= 0 {
		heap.Remove(&e.turn.queue, e.queueIndex)
	}
}

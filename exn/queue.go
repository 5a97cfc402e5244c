package exn

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exnet/exteth"
	"exnet/fabric"
)

// queueKey names a queue: one for each peer, and one for all group frames,
// which leave in order.
type queueKey struct {
	group bool
	node  fabric.NodeID
}

// queue holds the frames that wait for a peer's credit.
type queue struct {
	key  queueKey
	held atomic.Bool // frames is not empty; changed under mu

	mu       sync.Mutex
	frames   []*exteth.TxBuffer // guarded by mu
	draining bool               // guarded by mu; a drain is under way
	again    bool               // guarded by mu; another drain was called meanwhile
	stops    bool               // guarded by mu; counted in Interface.stopped
	stalled  bool               // guarded by mu; never set for the group queue
	skip     bool               // guarded by mu; group queue only: leave out members without credit
	moved    time.Time          // guarded by mu; when the first frame last made progress
}

// queue returns the queue of a key. It makes the queue on first use.
func (i *Interface) queue(k queueKey) *queue {
	if k.group {
		return &i.group
	}
	if q := i.peers.Load(k.node); q != nil {
		return q
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	q := i.peers.Load(k.node)
	if q == nil {
		q = &queue{key: k}
		i.peers.Store(k.node, q)
	}
	return q
}

// clear reports whether no frame waits for a peer's credit. If so, a frame may be
// sent to it without overtaking another.
func (i *Interface) clear(k queueKey) bool {
	return i.backlog.Load() == 0 || !i.queue(k).held.Load()
}

// queueLimit is how many frames in one queue stop the interface. It is a quarter of
// the buffers, so no peer can take them all.
func (i *Interface) queueLimit() int { return i.cfg.Buffers / 4 }

// queueSlack is how many frames a queue takes beyond queueLimit, from senders that
// called Stopped before it was reached.
func (i *Interface) queueSlack() int { return i.cfg.Buffers / 16 }

// enqueue appends b to the queue and sends what the peer has credit for. It takes
// b, and returns ErrStalled if it dropped b because the queue is full.
func (i *Interface) enqueue(q *queue, b *exteth.TxBuffer) error {
	q.mu.Lock()
	limit := i.queueLimit()
	room := limit + i.queueSlack()
	if q.stalled {
		room = 1
	}
	if len(q.frames) >= room {
		q.mu.Unlock()
		i.stats.TxStalled.Add(1)
		i.Free(b)
		return ErrStalled
	}
	if len(q.frames) == 0 {
		q.moved = time.Now()
		q.held.Store(true)
		i.backlog.Add(1)
		i.watch()
	}
	q.frames = append(q.frames, b)
	if len(q.frames) >= limit && !q.stops && !q.stalled {
		q.stops = true
		i.stopped.Add(1)
		i.stats.TxStops.Add(1)
	}
	q.mu.Unlock()
	i.drain(q)
	return nil
}

// drain sends the queued frames for which there is credit. It holds no lock while
// it sends a frame, because the receiver may run in this goroutine and send to the
// same peer. If another drain is under way, it only sets again and returns.
func (i *Interface) drain(q *queue) {
	q.mu.Lock()
	if q.draining {
		q.again = true
		q.mu.Unlock()
		return
	}
	q.draining = true
	var dropped []*exteth.TxBuffer
	for len(q.frames) > 0 {
		b, skip := q.frames[0], q.skip
		before := b.Sent()
		q.again, q.skip = false, false
		q.mu.Unlock()
		err := i.sendNow(q.key, b, skip)
		q.mu.Lock()
		if errors.Is(err, exteth.ErrAgain) {
			if b.Sent() != before {
				q.moved = time.Now()
			}
			if q.again {
				continue
			}
			if q.stalled {
				dropped = q.dropLocked()
			}
			break
		}
		q.frames = append(q.frames[:0], q.frames[1:]...)
		q.moved = time.Now()
		if len(q.frames) == 0 {
			q.held.Store(false)
			i.backlog.Add(-1)
			q.stalled = false
		}
	}
	q.draining = false
	ready := i.restartLocked(q)
	q.mu.Unlock()
	for _, b := range dropped {
		i.stats.TxStalled.Add(1)
		i.Free(b)
	}
	if ready {
		i.cfg.OnReady()
	}
}

// dropLocked removes and returns the frames of a stalled peer, except the first: that
// one asks for credit, and so finds out when the peer takes frames again.
func (q *queue) dropLocked() []*exteth.TxBuffer {
	dropped := slices.Clone(q.frames[1:])
	clear(q.frames[1:])
	q.frames = q.frames[:1]
	return dropped
}

// restartLocked reports whether the interface restarts: this queue had stopped it
// and no longer does, and no other queue stops it.
func (i *Interface) restartLocked(q *queue) bool {
	if !q.stops || (len(q.frames) > i.queueLimit()/2 && !q.stalled) {
		return false
	}
	q.stops = false
	return i.stopped.Add(-1) == 0
}

// credit is called by the fabric when a peer has credit again.
func (i *Interface) credit(n fabric.NodeID) {
	if i.backlog.Load() == 0 {
		return
	}
	i.drain(i.queue(queueKey{node: n}))
	i.drain(i.queue(queueKey{group: true}))
}

// Stopped reports whether a peer without credit stops the interface. The sender
// then waits for Config.OnReady.
func (i *Interface) Stopped() bool { return i.stopped.Load() > 0 }

// stallTime is how long the queue may stand still.
func (i *Interface) stallTime(q *queue) time.Duration {
	if q.key.group {
		return i.cfg.GroupStallTime
	}
	return i.cfg.StallTime
}

// watch starts the timer that checks the queues, unless it runs.
func (i *Interface) watch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.watching || i.closed {
		return
	}
	i.watching = true
	i.checks.Add(1)
	if pause := min(i.cfg.StallTime, i.cfg.GroupStallTime); i.stall == nil {
		i.stall = time.AfterFunc(pause, i.checkStalled)
	} else {
		i.stall.Reset(pause)
	}
}

// checkStalled finds the queues that have not moved. A stalled peer no longer
// stops the interface, and frames that cannot be sent to it are dropped. Group
// frames are sent without the members that have no credit.
func (i *Interface) checkStalled() {
	defer i.checks.Done()
	i.mu.Lock()
	i.watching = false
	i.mu.Unlock()
	waiting := i.check(&i.group)
	for _, q := range i.peers.All() {
		waiting = i.check(q) || waiting
	}
	if waiting {
		i.watch()
	}
}

// check checks one queue for checkStalled, and reports whether to check it again.
func (i *Interface) check(q *queue) (waiting bool) {
	if !q.held.Load() {
		return false
	}
	q.mu.Lock()
	held := len(q.frames) > 0
	late := held && !q.stalled && time.Since(q.moved) >= i.stallTime(q)
	if late {
		q.stalled, q.skip = !q.key.group, q.key.group
		i.stats.TxStalls.Add(1)
	}
	waiting = held && !q.stalled
	q.mu.Unlock()
	if late {
		i.drain(q)
	}
	return waiting
}

package exn

import (
	"errors"
	"sync"
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
	key queueKey

	mu       sync.Mutex
	frames   []*exteth.TxBuffer // guarded by mu
	draining bool               // guarded by mu; a drain is under way
	again    bool               // guarded by mu; credit came while it was
	stops    bool               // guarded by mu; counted in Interface.stopped
	stalled  bool               // guarded by mu
	moved    time.Time          // guarded by mu; when a frame last left, or the first came
}

// queue returns the queue of a key, which it makes on first use.
func (i *Interface) queue(k queueKey) *queue {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := i.queues[k]
	if q == nil {
		q = &queue{key: k}
		i.queues[k] = q
	}
	return q
}

// queueLimit is how many frames one queue holds: a part of the buffers, so that
// no peer can take them all.
func (i *Interface) queueLimit() int { return i.cfg.Buffers / 4 }

// enqueue takes b, and sends what can be sent.
func (i *Interface) enqueue(q *queue, b *exteth.TxBuffer) error {
	q.mu.Lock()
	limit := i.queueLimit()
	if q.stalled && !q.key.group {
		limit = 1
	}
	if len(q.frames) >= limit {
		q.mu.Unlock()
		i.stats.TxStalled.Add(1)
		i.Free(b)
		return ErrStalled
	}
	if len(q.frames) == 0 {
		q.moved = time.Now()
		i.backlog.Add(1)
		i.watch()
	}
	q.frames = append(q.frames, b)
	if len(q.frames) == limit && !q.stops && !q.stalled {
		q.stops = true
		i.stopped.Add(1)
		i.stats.TxStops.Add(1)
	}
	q.mu.Unlock()
	i.drain(q)
	return nil
}

// drain sends what the queue holds, as far as there is credit. It holds no lock
// while a frame is sent, because the receiver may run in this goroutine and
// send to the same peer; a drain that finds another one under way leaves it a
// note.
func (i *Interface) drain(q *queue) {
	q.mu.Lock()
	if q.draining {
		q.again = true
		q.mu.Unlock()
		return
	}
	q.draining = true
	for len(q.frames) > 0 {
		b, skip := q.frames[0], q.stalled
		q.again = false
		q.mu.Unlock()
		err := i.sendNow(q.key, b, skip)
		q.mu.Lock()
		if errors.Is(err, exteth.ErrAgain) {
			if q.again {
				continue
			}
			if q.stalled && !q.key.group {
				i.dropLocked(q)
			}
			break
		}
		q.frames = append(q.frames[:0], q.frames[1:]...)
		q.moved = time.Now()
		if len(q.frames) == 0 {
			i.backlog.Add(-1)
			q.stalled = false
		}
	}
	q.draining = false
	ready := i.restartLocked(q)
	q.mu.Unlock()
	if ready {
		i.cfg.OnReady()
	}
}

// dropLocked drops the frames of a stalled peer, but for the first: it asks for
// credit, and so finds out when the peer takes frames again.
func (i *Interface) dropLocked(q *queue) {
	for _, b := range q.frames[1:] {
		i.stats.TxStalled.Add(1)
		i.Free(b)
	}
	clear(q.frames[1:])
	q.frames = q.frames[:1]
}

// restartLocked reports whether the queue stopped the interface and no longer
// does, and no other queue does.
func (i *Interface) restartLocked(q *queue) bool {
	if !q.stops || (len(q.frames) > i.queueLimit()/2 && !q.stalled) {
		return false
	}
	q.stops = false
	return i.stopped.Add(-1) == 0
}

// credit is the fabric's word that a peer has credit again.
func (i *Interface) credit(n fabric.NodeID) {
	if i.backlog.Load() == 0 {
		return
	}
	i.drain(i.queue(queueKey{node: n}))
	i.drain(i.queue(queueKey{group: true}))
}

// Stopped reports whether a peer without credit stops the interface. Whoever
// feeds it then waits for Config.OnReady.
func (i *Interface) Stopped() bool { return i.stopped.Load() > 0 }

// watch has the queues looked at after StallTime.
func (i *Interface) watch() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stall == nil {
		i.stall = time.AfterFunc(i.cfg.StallTime, i.checkStalled)
	} else {
		i.stall.Reset(i.cfg.StallTime)
	}
}

// checkStalled finds the queues that have not moved, lets them stop the
// interface no longer, and drops what cannot be sent.
func (i *Interface) checkStalled() {
	i.mu.Lock()
	queues := make([]*queue, 0, len(i.queues))
	for _, q := range i.queues {
		queues = append(queues, q)
	}
	i.mu.Unlock()
	waiting := false
	for _, q := range queues {
		q.mu.Lock()
		held := len(q.frames) > 0
		late := held && time.Since(q.moved) >= i.cfg.StallTime
		if late && !q.stalled {
			q.stalled = true
			i.stats.TxStalls.Add(1)
		}
		waiting = waiting || held && (!q.stalled || q.key.group)
		q.mu.Unlock()
		if late {
			i.drain(q)
		}
	}
	if waiting {
		i.watch()
	}
}

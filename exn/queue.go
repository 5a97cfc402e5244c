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

// queueState is what the frames of a queue wait for.
//
//	credit ── none has moved for stallTime ─▶ stalled
//	credit ◀── all have moved ─────────────── stalled
//	any ── the link has ended ──────────────▶ away
//	credit, stalled ── no open mailbox ─────▶ away
//	credit ◀── the peer can be reached ────── away, gone
//	gone ◀──── AwayTime is over ───────────── away
//
// A full queue stops the interface: in credit always, in away for at most stallTime.
type queueState uint8

const (
	queueCredit  queueState = iota // they wait for the peer's credit
	queueStalled                   // they wait for credit too, but the peer may be dead: only one frame is kept
	queueAway                      // they wait for the peer's next link, or for its mailbox
	queueGone                      // the peer has not come back: no frame waits, and none may
)

// queue holds the frames that cannot be sent to a peer yet.
type queue struct {
	key  queueKey
	held atomic.Bool // frames is not empty, or state is queueAway; changed under mu

	mu       sync.Mutex
	frames   []*exteth.TxBuffer // guarded by mu
	draining bool               // guarded by mu; a goroutine is in sendQueued and owns the first frame
	again    bool               // guarded by mu; sendQueued was called meanwhile
	stops    bool               // guarded by mu; this queue stops the interface
	state    queueState         // guarded by mu; always queueCredit for the group queue
	unread   int                // guarded by mu; frames that the peer's last link had begun to carry
	skip     bool               // guarded by mu; group queue only: leave out members without credit
	moved    time.Time          // guarded by mu; when the first frame last made progress, or the link ended
}

// queueOf returns the queue of a key. It makes the queue on first use.
func (i *Interface) queueOf(k queueKey) *queue {
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

// noneQueued reports whether no frame waits for a peer. If so, a frame may be sent to it without
// overtaking another.
func (i *Interface) noneQueued(k queueKey) bool {
	return i.backlog.Load() == 0 || !i.queueOf(k).held.Load()
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
	i.returnLocked(q)
	if q.state == queueGone { // a frame is queued for want of credit: so the peer can be reached
		q.state = queueCredit
	}
	if len(q.frames) >= i.roomLocked(q) {
		q.mu.Unlock()
		i.stats.TxStalled.Add(1)
		i.Free(b)
		return ErrStalled
	}
	if len(q.frames) == 0 && q.state == queueCredit {
		q.moved = time.Now()
		i.holdLocked(q)
	}
	q.frames = append(q.frames, b)
	if q.state == queueAway {
		i.away.Add(1)
		i.stats.TxAway.Add(1)
	}
	if i.fullLocked(q, i.queueLimit()) && !q.stops {
		q.stops = true
		i.stopped.Add(1)
		i.stats.TxStops.Add(1)
	}
	q.mu.Unlock()
	i.sendQueued(q)
	return nil
}

// roomLocked returns how many frames the queue may hold. All queues in away share the room of
// one.
func (i *Interface) roomLocked(q *queue) int {
	room := i.queueLimit() + i.queueSlack()
	switch q.state {
	case queueStalled:
		return 1
	case queueAway:
		return len(q.frames) + max(0, room-int(i.away.Load()))
	}
	return room
}

// fullLocked reports whether the queue has so many frames that it stops the interface.
func (i *Interface) fullLocked(q *queue, limit int) bool {
	switch q.state {
	case queueCredit:
		return len(q.frames) >= limit
	case queueAway:
		return int(i.away.Load()) >= limit && time.Since(q.moved) < i.stallTime(q)
	}
	return false
}

// holdLocked makes later frames for the peer go through the queue.
func (i *Interface) holdLocked(q *queue) {
	if !q.held.Swap(true) {
		i.backlog.Add(1)
		i.startTimer()
	}
}

// releaseLocked lets later frames for the peer bypass the queue, which is empty.
func (i *Interface) releaseLocked(q *queue, state queueState) {
	q.state = state
	if q.held.Swap(false) {
		i.backlog.Add(-1)
	}
}

// hasLink reports whether the queue's peer has a link. The group queue needs none.
func (i *Interface) hasLink(q *queue) bool {
	return q.key.group || i.cfg.NIC.Routes().Port(q.key.node) != nil
}

// linkEnded is called by the fabric when the link to a node has ended.
func (i *Interface) linkEnded(n fabric.NodeID) {
	q := i.queueOf(queueKey{node: n})
	q.mu.Lock()
	i.unlockQueue(q, i.leaveLocked(q))
}

// onUnreached is called when a frame could not be sent to a node; exteth.Unreached holds for err.
// It reports whether the frame should wait: the node had a link before, and may have one again.
func (i *Interface) onUnreached(n fabric.NodeID, err error) bool {
	if errors.Is(err, fabric.ErrNoRoute) && i.peers.Load(n) == nil {
		return false
	}
	q := i.queueOf(queueKey{node: n})
	q.mu.Lock()
	var dropped []*exteth.TxBuffer
	if errors.Is(err, fabric.ErrPeerDown) && q.state != queueGone {
		dropped = i.leaveLocked(q)
	}
	waits := q.state == queueAway
	i.unlockQueue(q, dropped)
	return waits
}

// leaveLocked moves the queue to queueAway. It returns the frames for which there is no room
// there.
func (i *Interface) leaveLocked(q *queue) (dropped []*exteth.TxBuffer) {
	if q.state == queueAway {
		return nil
	}
	keep := max(0, i.queueLimit()+i.queueSlack()-int(i.away.Load()))
	if q.draining { // sendQueued owns the first frame
		keep = max(1, keep)
	}
	q.state, q.moved, q.unread = queueAway, time.Now(), 0
	dropped = q.cutLocked(keep)
	i.away.Add(int32(len(q.frames)))
	i.stats.TxAway.Add(uint64(len(q.frames)))
	i.holdLocked(q)
	return dropped
}

// onUnread is called by the fabric when a link has ended, with a frame that the peer may not have
// read. The frame waits for the next link, ahead of all frames that were sent later. At most
// half of the buffers may wait in this way.
func (i *Interface) onUnread(n fabric.NodeID, b *exteth.TxBuffer) {
	q := i.queueOf(queueKey{node: n})
	q.mu.Lock()
	var dropped []*exteth.TxBuffer
	if q.state != queueGone {
		dropped = i.leaveLocked(q)
	}
	if q.state == queueAway && int(i.away.Load()) < i.cfg.Buffers/2 {
		at := q.unread
		if q.draining { // sendQueued owns the first frame
			at++
		}
		q.frames = slices.Insert(q.frames, min(at, len(q.frames)), b)
		q.unread++
		i.away.Add(1)
		i.stats.TxAway.Add(1)
	} else {
		dropped = append(dropped, b)
	}
	i.unlockQueue(q, dropped)
}

// returnLocked moves the queue from queueAway to queueCredit, if it is empty and its peer has a
// link again.
func (i *Interface) returnLocked(q *queue) {
	if q.state == queueAway && len(q.frames) == 0 && i.hasLink(q) {
		i.releaseLocked(q, queueCredit)
	}
}

// reachedLocked moves the queue from queueAway to queueCredit: its peer was reached.
func (i *Interface) reachedLocked(q *queue) {
	if q.state == queueAway {
		i.away.Add(-int32(len(q.frames)))
		q.state, q.moved = queueCredit, time.Now()
	}
}

// cutLocked removes and returns the frames behind the first n.
func (q *queue) cutLocked(n int) []*exteth.TxBuffer {
	if n >= len(q.frames) {
		return nil
	}
	cut := slices.Clone(q.frames[n:])
	clear(q.frames[n:])
	q.frames = q.frames[:n]
	return cut
}

// unlockQueue releases q.mu after the queue has changed. Then it counts and frees the dropped
// frames, and calls OnReady if the interface restarts.
//
// +checklocksrelease:q.mu
func (i *Interface) unlockQueue(q *queue, dropped []*exteth.TxBuffer) {
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

// sendQueued sends the queued frames for which there is credit. It holds no lock while it sends
// a frame, because the receiver may run in this goroutine and send to the same peer. If another
// goroutine is sending already, sendQueued only has it try again.
func (i *Interface) sendQueued(q *queue) {
	q.mu.Lock()
	if q.draining {
		q.again = true
		q.mu.Unlock()
		return
	}
	q.draining = true
	var dropped []*exteth.TxBuffer
	for len(q.frames) > 0 && (q.state != queueAway || i.hasLink(q)) {
		b, skip := q.frames[0], q.skip
		before := b.Sent()
		q.again, q.skip = false, false
		q.mu.Unlock()
		err := i.sendNow(q.key, b, skip)
		q.mu.Lock()
		if !q.key.group && exteth.Unreached(err) {
			dropped = i.leaveLocked(q)
			break
		}
		if errors.Is(err, exteth.ErrAgain) {
			i.reachedLocked(q)
			if b.Sent() != before {
				q.moved = time.Now()
			}
			if q.again {
				continue
			}
			if q.state == queueStalled { // keep the first frame: trying to send it requests credit
				dropped = q.cutLocked(1)
			}
			break
		}
		i.sentLocked(q)
	}
	q.draining = false
	i.unlockQueue(q, dropped)
}

// sentLocked removes the first frame after it was sent or dropped.
func (i *Interface) sentLocked(q *queue) {
	i.reachedLocked(q)
	q.frames = append(q.frames[:0], q.frames[1:]...)
	q.moved = time.Now()
	if len(q.frames) == 0 {
		i.releaseLocked(q, queueCredit)
	}
}

// restartLocked reports whether the interface restarts: this queue had stopped it
// and no longer does, and no other queue stops it.
func (i *Interface) restartLocked(q *queue) bool {
	if !q.stops || i.fullLocked(q, i.queueLimit()/2+1) {
		return false
	}
	q.stops = false
	return i.stopped.Add(-1) == 0
}

// onCredit is called by the fabric when a peer has credit again.
func (i *Interface) onCredit(n fabric.NodeID) {
	if i.backlog.Load() == 0 {
		return
	}
	i.sendQueued(i.queueOf(queueKey{node: n}))
	i.sendQueued(i.queueOf(queueKey{group: true}))
}

// Stopped reports whether a peer without credit stops the interface. The sender
// then waits for Config.OnReady.
func (i *Interface) Stopped() bool { return i.stopped.Load() > 0 }

// stallTime is how long a queue that does not move may stop the interface. It is longer if only
// the queue's peer has a link: then nobody else has to wait.
func (i *Interface) stallTime(q *queue) time.Duration {
	if q.key.group {
		return i.cfg.GroupStallTime
	}
	others := func(n fabric.NodeID) bool { return n != q.key.node }
	if !slices.ContainsFunc(i.cfg.NIC.Routes().Members(fabric.GroupBroadcast), others) {
		return max(i.cfg.StallTime, i.cfg.AwayTime)
	}
	return i.cfg.StallTime
}

// startTimer starts the timer that checks the queues, unless it runs.
func (i *Interface) startTimer() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.watching || i.closed {
		return
	}
	i.watching = true
	i.checks.Add(1)
	if pause := min(i.cfg.StallTime, i.cfg.GroupStallTime, i.cfg.AwayTime/100); i.stall == nil {
		i.stall = time.AfterFunc(pause, i.checkStalled)
	} else {
		i.stall.Reset(pause)
	}
}

// checkStalled finds the queues that have not moved for stallTime. The queue of a peer then
// becomes queueStalled: it no longer stops the interface, and its frames are dropped. The group
// queue then sends to the members that have credit, and leaves out the others.
func (i *Interface) checkStalled() {
	defer i.checks.Done()
	i.mu.Lock()
	i.watching = false
	i.mu.Unlock()
	waiting := i.checkQueue(&i.group)
	for _, q := range i.peers.All() {
		waiting = i.checkQueue(q) || waiting
	}
	if waiting {
		i.startTimer()
	}
}

// checkQueue checks one queue for checkStalled, and reports whether to check it again.
func (i *Interface) checkQueue(q *queue) (waiting bool) {
	if !q.held.Load() {
		return false
	}
	q.mu.Lock()
	was := q.state
	i.returnLocked(q)
	var dropped []*exteth.TxBuffer
	late := false
	switch still := time.Since(q.moved); {
	case q.state == queueAway && still >= i.cfg.AwayTime && !q.draining:
		dropped = q.cutLocked(0)
		i.away.Add(-int32(len(dropped)))
		i.releaseLocked(q, queueGone)
	case q.state == queueCredit && len(q.frames) > 0 && still >= i.stallTime(q):
		late = true
		q.skip = q.key.group
		if !q.key.group {
			q.state = queueStalled
		}
		i.stats.TxStalls.Add(1)
	}
	waiting = q.held.Load() && q.state != queueStalled
	if late { // sendQueued drops frames, and restarts the interface after that
		q.mu.Unlock()
	} else {
		i.unlockQueue(q, dropped)
	}
	if late || was == queueAway {
		i.sendQueued(q)
	}
	return waiting
}

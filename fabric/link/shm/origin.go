package shm

import (
	"sync"

	"exnet/fabric"
	"exnet/fabric/link"
)

// MaxOps is how many RMA operations run over a link in each direction; further
// ones wait at their origin.
const MaxOps = 256

type opState uint8

const (
	opFree    opState = iota
	opGet             // asked, no answer yet
	opPut             // asked, no answer yet
	opRunning         // answered: whoever took the answer ends it
)

// op is an operation that this node has started.
type op struct {
	state  opState
	n      int
	sink   link.Sink // of a GET
	done   link.Done // of a PUT
	bounce []byte    // copy of the data of a PUT whose memory the peer cannot read
}

// request is an operation that waits for a number.
type request struct {
	get  link.Get
	sink link.Sink // nil for a PUT
	put  link.Put
	data []byte
	done link.Done
}

// opTable is the origin's side of the operations under way.
type opTable struct {
	mu      sync.Mutex
	down    bool       // guarded by mu
	ops     [MaxOps]op // guarded by mu
	free    []uint16   // guarded by mu
	waiting []request  // guarded by mu
	first   int        // guarded by mu; of waiting
}

// checkAnswer is called by the pump: it checks that an answer belongs to an operation.
func (t *opTable) checkAnswer(m *message) bool {
	if m.id >= MaxOps || !m.status.Valid() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.ops[m.id]
	if o.state != opGet && o.state != opPut {
		return t.down // the operation has failed already
	}
	if o.state == opGet && m.status == fabric.StatusOK && m.n != o.n {
		return false
	}
	return true
}

// Get implements link.Port.
func (p port) Get(g link.Get, s link.Sink) {
	if !p.readLoan(&g, s) {
		p.startOrQueue(request{get: g, sink: s})
	}
}

// Put implements link.Port.
func (p port) Put(r link.Put, data []byte, d link.Done) {
	p.startOrQueue(request{put: r, data: data, done: d})
}

// startOrQueue starts an operation, or has it wait for a number.
func (l *Link) startOrQueue(r request) {
	t := &l.ops
	t.mu.Lock()
	if t.down {
		t.mu.Unlock()
		r.fail(fabric.StatusPeerDown)
		return
	}
	if len(t.free) == 0 {
		if t.first > len(t.waiting)/2 && len(t.waiting) == cap(t.waiting) {
			t.waiting = append(t.waiting[:0], t.waiting[t.first:]...)
			t.first = 0
		}
		t.waiting = append(t.waiting, r)
		t.mu.Unlock()
		return
	}
	id := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	m, ok := l.prepareLocked(id, &r)
	t.mu.Unlock()
	if !ok { // no memory for a copy of the data
		r.fail(fabric.StatusOverrun)
		l.giveNumber(id)
		return
	}
	l.out.sendMessage(&m)
}

func (r *request) fail(s fabric.Status) {
	if r.sink != nil {
		r.sink.Done(s)
		return
	}
	r.done.Done(s)
}

// prepareLocked enters an operation into the table and makes its message.
func (l *Link) prepareLocked(id uint16, r *request) (m message, ok bool) {
	o := &l.ops.ops[id]
	if r.sink != nil {
		*o = op{state: opGet, n: r.get.Len, sink: r.sink}
		m = message{kind: kindGet, id: id, from: r.get.From, to: r.get.To, n: r.get.Len, remote: uint64(r.get.Remote)}
		if r.get.Notify {
			m.flags |= flagNotify
		}
		return m, true
	}
	m = message{kind: kindPut, id: id, from: r.put.From, to: r.put.To, n: len(r.data), remote: uint64(r.put.Remote)}
	if r.put.Notify {
		m.flags |= flagNotify
	}
	if r.put.Immediate {
		m.flags |= flagImmediate
	}
	var bounce []byte
	if len(r.data) <= maxInline {
		m.flags |= flagInline
		copy(m.inline[:], r.data)
	} else if off, shared := l.arena.Offset(r.data); shared {
		m.place = uint64(off)
	} else {
		var err error
		if bounce, err = l.arena.Alloc(len(r.data)); err != nil {
			return m, false
		}
		copy(bounce, r.data)
		off, _ = l.arena.Offset(bounce)
		m.place = uint64(off)
		l.count.bounced.Add(1)
	}
	*o = op{state: opPut, n: len(r.data), done: r.done, bounce: bounce}
	return m, true
}

// giveNumber gives the number id to an operation that waits, or back.
func (l *Link) giveNumber(id uint16) {
	t := &l.ops
	for {
		t.mu.Lock()
		if t.first == len(t.waiting) || t.down {
			t.ops[id] = op{}
			t.free = append(t.free, id)
			t.mu.Unlock()
			return
		}
		r := t.waiting[t.first]
		t.waiting[t.first] = request{}
		if t.first++; t.first == len(t.waiting) {
			t.waiting, t.first = t.waiting[:0], 0
		}
		m, ok := l.prepareLocked(id, &r)
		t.mu.Unlock()
		if ok {
			l.out.sendMessage(&m)
			return
		}
		r.fail(fabric.StatusOverrun)
	}
}

// endOperation ends an operation: a GET reads the data where the peer says that it is.
func (l *Link) endOperation(m *message) {
	t := &l.ops
	t.mu.Lock()
	o := t.ops[m.id]
	if o.state != opGet && o.state != opPut { // the link went down
		t.mu.Unlock()
		return
	}
	t.ops[m.id].state = opRunning
	t.mu.Unlock()
	st := m.status
	if o.state == opGet && st == fabric.StatusOK {
		st = l.readGet(m, o.sink)
		l.moved.Add(uint64(m.n))
		l.near.taken.Add(uint64(m.n))
		l.out.queueMessage(&message{kind: kindRelease, id: m.id})
		l.ringLater()
	}
	if o.bounce != nil {
		l.arena.Free(o.bounce)
	}
	l.giveNumber(m.id)
	if o.sink != nil {
		o.sink.Done(st)
		return
	}
	o.done.Done(st)
}

// readGet brings the data of a GET to its place, in one step.
func (l *Link) readGet(m *message, s link.Sink) fabric.Status {
	data, st := l.farArena.borrowBytes(m.place, m.n)
	if st != fabric.StatusOK {
		return st
	}
	defer l.farArena.giveBack()
	_ = s.Data(0, data) // an error is the sink's, which remembers it for Done
	return fabric.StatusOK
}

// failAll ends the operations of both sides: the peer is gone.
func (l *Link) failAll() {
	t := &l.ops
	t.mu.Lock()
	t.down = true
	var failed []request
	for i := range t.ops {
		o := &t.ops[i]
		switch o.state {
		case opGet, opPut:
			failed = append(failed, request{sink: o.sink, done: o.done})
			if o.bounce != nil {
				l.arena.Free(o.bounce)
			}
			*o = op{}
		}
	}
	failed = append(failed, t.waiting[t.first:]...)
	t.waiting, t.first = nil, 0
	t.mu.Unlock()
	for i := range failed {
		failed[i].fail(fabric.StatusPeerDown)
	}
}

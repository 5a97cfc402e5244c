package shm

import (
	"sync"

	"exnet/fabric"
	"exnet/fabric/atu"
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

// answered is the pump's: it checks that an answer belongs to an operation.
func (t *opTable) answered(m *message) bool {
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
		p.start(request{get: g, sink: s})
	}
}

// Put implements link.Port.
func (p port) Put(r link.Put, data []byte, d link.Done) {
	p.start(request{put: r, data: data, done: d})
}

// start starts an operation, or has it wait for a number.
func (l *Link) start(r request) {
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
		l.next(id)
		return
	}
	l.out.send(&m)
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

// next gives the number id to an operation that waits, or back.
func (l *Link) next(id uint16) {
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
			l.out.send(&m)
			return
		}
		r.fail(fabric.StatusOverrun)
	}
}

// answer ends an operation: a GET reads the data where the peer says that it is.
func (l *Link) answer(m *message) {
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
		st = l.read(m, o.sink)
		l.out.send(&message{kind: kindRelease, id: m.id})
	}
	if o.bounce != nil {
		l.arena.Free(o.bounce)
	}
	l.next(m.id)
	if o.sink != nil {
		o.sink.Done(st)
		return
	}
	o.done.Done(st)
}

// read brings the data of a GET to its place, in one step.
func (l *Link) read(m *message, s link.Sink) fabric.Status {
	data, st := l.farArena.borrow(m.place, m.n)
	if st != fabric.StatusOK {
		return st
	}
	defer l.farArena.giveBack()
	_ = s.Data(0, data) // an error is the sink's, which remembers it for Done
	return fabric.StatusOK
}

// lent is what a GET of the peer reads: memory of a region, or a copy of it.
type lent struct {
	lease  link.Lease
	bounce []byte
}

// end takes back what a peer has read, or can no longer read.
func (l *Link) end(s lent, read bool) {
	if s.lease != nil {
		s.lease.End(read)
	}
	if s.bounce != nil {
		l.arena.Free(s.bounce)
	}
}

type serveState uint8

const (
	serveFree    serveState = iota
	serveRunning            // the request is being served
	serveLent               // the peer reads
)

// serveTable is the target's side of the operations under way.
type serveTable struct {
	mu      sync.Mutex
	down    bool               // guarded by mu
	state   [MaxOps]serveState // guarded by mu
	lent    [MaxOps]lent       // guarded by mu
	putDone [MaxOps]putDone
}

// begin is the pump's: it checks that the peer's number is free.
func (t *serveTable) begin(m *message) bool {
	if m.id >= MaxOps || m.flags&flagInline != 0 && m.n > maxInline {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state[m.id] != serveFree {
		return false
	}
	t.state[m.id] = serveRunning
	return true
}

// release is the pump's: it takes back what the peer has read.
func (t *serveTable) release(id uint16) (lent, bool) {
	if id >= MaxOps {
		return lent{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state[id] != serveLent {
		return lent{}, t.down
	}
	s := t.lent[id]
	t.state[id], t.lent[id] = serveFree, lent{}
	return s, true
}

// serveGet opens the memory that a peer asks for, and tells the peer where it is.
func (l *Link) serveGet(m *message) {
	a := message{kind: kindAnswer, id: m.id, n: m.n}
	ls, st := l.nic.LendGet(l.peer, m.request())
	s := lent{lease: ls}
	if st == fabric.StatusOK {
		off, shared := l.arena.Offset(ls.Bytes())
		if !shared {
			off, s.bounce, st = l.copyOut(ls.Bytes())
			s.lease = nil
			ls.End(st == fabric.StatusOK)
		}
		a.place = uint64(off)
	}
	a.status = st
	t := &l.serving
	t.mu.Lock()
	down := t.down
	switch {
	case down || st != fabric.StatusOK:
		t.state[m.id] = serveFree
	default:
		t.state[m.id], t.lent[m.id] = serveLent, s
	}
	t.mu.Unlock()
	if down && st == fabric.StatusOK {
		l.end(s, false)
		return
	}
	l.out.send(&a)
}

// request is the GET in m.
func (m *message) request() link.Get {
	return link.Get{From: m.from, To: m.to, Remote: atu.NLA(m.remote), Len: m.n, Notify: m.flags&flagNotify != 0}
}

// copyOut copies memory that the peer cannot read to where it can.
func (l *Link) copyOut(b []byte) (off int, bounce []byte, st fabric.Status) {
	bounce, err := l.arena.Alloc(len(b))
	if err != nil {
		return 0, nil, fabric.StatusOverrun
	}
	copy(bounce, b)
	off, _ = l.arena.Offset(bounce)
	l.count.bounced.Add(1)
	return off, bounce, fabric.StatusOK
}

// servePut writes the data of a peer to its place, straight from where the peer
// has it.
func (l *Link) servePut(m *message) {
	d := &l.serving.putDone[m.id]
	d.l, d.id, d.borrowed = l, m.id, false
	data := d.inline[:]
	copy(data, m.inline[:])
	if m.flags&flagInline == 0 {
		var st fabric.Status
		if data, st = l.farArena.borrow(m.place, m.n); st != fabric.StatusOK {
			d.Done(st)
			return
		}
		d.borrowed = true
	}
	l.nic.ServePut(l.peer, link.Put{
		From: m.from, To: m.to, Remote: atu.NLA(m.remote),
		Immediate: m.flags&flagImmediate != 0, Notify: m.flags&flagNotify != 0,
	}, data[:m.n], d)
}

// putDone is told how a PUT of the peer ended here.
type putDone struct {
	l        *Link
	id       uint16
	borrowed bool
	inline   [maxInline]byte
}

// Done implements link.Done.
func (d *putDone) Done(s fabric.Status) {
	l := d.l
	if d.borrowed {
		l.farArena.giveBack()
	}
	l.serving.mu.Lock()
	l.serving.state[d.id] = serveFree
	l.serving.mu.Unlock()
	l.out.send(&message{kind: kindAnswer, id: d.id, status: s})
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

// endAll takes back what the peer was reading.
func (l *Link) endAll() {
	t := &l.serving
	t.mu.Lock()
	t.down = true
	var open []lent
	for i := range t.state {
		if t.state[i] == serveLent {
			open = append(open, t.lent[i])
			t.state[i], t.lent[i] = serveFree, lent{}
		}
	}
	t.mu.Unlock()
	for _, s := range open {
		l.end(s, false)
	}
}

package stream

import (
	"errors"
	"fmt"
	"sync"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/foreign"
)

// maxOps is how many RMA operations run over a link in each direction; further ones
// wait at their origin. The target counts up to twice as many: it may learn later than
// the origin that one has ended.
const maxOps = 256

type opState uint8

const (
	opFree opState = iota
	opGet
	opPut
)

// chunks are the chunks of a transfer that have come.
type chunks struct {
	seen [(maxChunks + 63) / 64]uint64
	n    int // bytes
}

// markBegun records that the chunk at off comes; false: it came before.
func (c *chunks) markBegun(off int) bool {
	i := off / chunkSize
	bit := uint64(1) << (i % 64)
	if c.seen[i/64]&bit != 0 {
		return false
	}
	c.seen[i/64] |= bit
	return true
}

func (c *chunks) none() bool { return c.seen == chunks{}.seen }

// op is an operation that this node has started. After start it belongs to the pump,
// except for the fields that say otherwise.
type op struct {
	num    uint32 // guarded by opTable.mu; the upper bits count up
	state  opState
	n      int
	chunks // of a GET

	sink   link.Sink   // of a GET
	placer link.Placer // sink, if the data goes to memory
	place  []byte      // this memory; or gathered
	gather *[]byte

	done   link.Done // of a PUT
	sent   bool      // guarded by opTable.mu: all of the data
	ended  bool      // guarded by opTable.mu: the peer has said how
	status fabric.Status
	xfer   xfer

	progress progress // of a GET; guarded by opTable.mu as it says itself
}

// request is an operation that waits for a number.
type request struct {
	get  link.Get
	sink link.Sink // nil for a PUT
	put  link.Put
	data []byte
	done link.Done
}

func (r *request) fail(s fabric.Status) {
	if r.sink != nil {
		r.sink.Done(s)
		return
	}
	r.done.Done(s)
}

// opTable is the origin's side of the operations under way.
type opTable struct {
	mu      sync.Mutex
	down    bool       // guarded by mu
	ops     [maxOps]op // see op
	free    []uint8    // guarded by mu
	waiting []request  // guarded by mu
	first   int        // guarded by mu; of waiting
}

func (t *opTable) init() {
	for i := range t.ops {
		t.ops[i].num = uint32(i)
		t.free = append(t.free, uint8(maxOps-1-i))
	}
}

// opByNumber returns the operation that the peer speaks of.
func (t *opTable) opByNumber(num uint32, state opState) (*op, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &t.ops[num%maxOps]
	if o.num != num || o.state != state {
		return nil, fmt.Errorf("operation %d, which is not under way", num)
	}
	return o, nil
}

// Get implements link.Port.
func (p port) Get(g link.Get, s link.Sink) { p.startOrQueue(request{get: g, sink: s}) }

// Put implements link.Port.
func (p port) Put(r link.Put, data []byte, d link.Done) {
	p.startOrQueue(request{put: r, data: data, done: d})
}

// startOrQueue starts an operation, or has it wait for a number.
func (l *Link) startOrQueue(r request) {
	t := &l.ops
	t.mu.Lock()
	switch {
	case t.down:
		t.mu.Unlock()
		r.fail(fabric.StatusPeerDown)
		return
	case len(t.free) == 0:
		if t.first > len(t.waiting)/2 && len(t.waiting) == cap(t.waiting) {
			n := copy(t.waiting, t.waiting[t.first:])
			clear(t.waiting[n:])
			t.waiting, t.first = t.waiting[:n], 0
		}
		t.waiting = append(t.waiting, r)
		t.mu.Unlock()
		return
	}
	l.beginLocked(&r)
	t.mu.Unlock()
	l.scheduleSend()
}

// beginLocked starts an operation. It belongs to the holder of the table's mu; there is
// a free number.
func (l *Link) beginLocked(r *request) {
	t := &l.ops
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	o := &t.ops[i]
	if r.sink != nil {
		o.state, o.n, o.sink = opGet, r.get.Len, r.sink
		o.progress.reset()
		if p, ok := r.sink.(link.Placer); ok {
			if o.place = p.Place(); o.place != nil {
				o.placer = p
			}
		}
		m := getMessage(o.num, &r.get)
		l.queueMessage(&m)
		return
	}
	o.state, o.n, o.done = opPut, len(r.data), r.done
	o.xfer.progress.reset()
	m := putMessage(o.num, &r.put, o.n)
	if o.n <= inlineMax {
		o.sent = true
		l.out.addChunk(&m, r.data)
		l.dirty.Store(true)
		return
	}
	o.xfer.head, o.xfer.data, o.xfer.off = m, r.data, 0
	l.out.sendData(&o.xfer) // if the link is down, failAll ends the operation
	l.dirty.Store(true)
}

// ending is what is left of an operation: to tell who has started it.
type ending struct {
	n      int
	sink   link.Sink
	placer link.Placer
	gather *[]byte
	done   link.Done
	status fabric.Status
}

// endLocked frees the number of an operation, for one that waits if there is one. It
// belongs to the holder of the table's mu.
func (l *Link) endLocked(o *op) ending {
	t := &l.ops
	was := ending{o.n, o.sink, o.placer, o.gather, o.done, o.status}
	num := o.num
	o.state, o.chunks, o.sink, o.placer, o.place, o.gather = opFree, chunks{}, nil, nil, nil, nil
	o.done, o.sent, o.ended, o.status = nil, false, false, 0
	o.xfer.data, o.xfer.head, o.xfer.off = nil, message{}, 0
	o.num = num + maxOps
	t.free = append(t.free, uint8(num%maxOps))
	if t.first < len(t.waiting) && !t.down {
		r := t.waiting[t.first]
		t.waiting[t.first] = request{}
		if t.first++; t.first == len(t.waiting) {
			t.waiting, t.first = t.waiting[:0], 0
		}
		l.beginLocked(&r)
	}
	return was
}

// getData is called by the pump: a chunk of the response to a GET begins.
func (l *Link) getData(m *message) (incoming, error) {
	o, err := l.ops.opByNumber(m.op, opGet)
	if err != nil {
		return incoming{}, err
	}
	if m.off >= o.n || !o.markBegun(m.off) {
		return incoming{}, fmt.Errorf("chunk at %d of a GET of %d bytes", m.off, o.n)
	}
	if o.place == nil {
		l.count.Bounced.Add(1)
		o.gather = lendBytes(o.n)
		o.place = *o.gather
	}
	n := chunkLen(o.n, m.off)
	return incoming{get: o, n: n, place: o.place[m.off : m.off+n]}, nil
}

// gotData is called by the pump: a chunk has come.
func (l *Link) gotData(o *op, n int) {
	o.chunks.n += n
	if o.chunks.n < o.n {
		return
	}
	l.ops.mu.Lock()
	was := l.endLocked(o)
	l.ops.mu.Unlock()
	l.calls.addCall(call{do: callGot, end: was})
}

// endGet ends a GET whose data has come.
func (e *ending) endGet() {
	if e.placer != nil {
		e.placer.Placed(e.n)
	} else {
		_ = e.sink.Data(0, foreign.Of(*e.gather)) // an error is the sink's, which remembers it for Done
		releaseGathered(e.gather)
	}
	e.sink.Done(fabric.StatusOK)
}

// getRefused is called by the pump: a GET ends without data.
func (l *Link) getRefused(m *message) error {
	o, err := l.ops.opByNumber(m.op, opGet)
	if err != nil {
		return err
	}
	if !o.none() {
		return errors.New("GET refused after some of its data arrived")
	}
	l.ops.mu.Lock()
	was := l.endLocked(o)
	l.ops.mu.Unlock()
	was.status = m.status
	l.calls.addCall(call{do: callDone, end: was})
	return nil
}

// putEnded is called by the pump: the peer says how a PUT has ended. The memory is the
// caller's again when all of it was sent, too, which this side may learn later.
func (l *Link) putEnded(m *message) error {
	o, err := l.ops.opByNumber(m.op, opPut)
	if err != nil {
		return err
	}
	l.ops.mu.Lock()
	defer l.ops.mu.Unlock()
	if o.ended {
		return fmt.Errorf("PUT %d ended twice", m.op)
	}
	o.ended, o.status = true, m.status
	if o.sent {
		l.calls.addCall(call{do: callDone, end: l.endLocked(o)})
	}
	return nil
}

// putSent records that all data of a PUT was sent.
func (l *Link) putSent(num uint32) {
	t := &l.ops
	t.mu.Lock()
	o := &t.ops[num%maxOps]
	if t.down || o.num != num {
		t.mu.Unlock()
		return
	}
	o.sent = true
	if !o.ended {
		t.mu.Unlock()
		return
	}
	was := l.endLocked(o)
	t.mu.Unlock()
	was.tellEnd()
	l.scheduleSend()
}

// tellEnd tells who has started the operation how it ended.
func (e *ending) tellEnd() {
	if e.gather != nil {
		releaseGathered(e.gather)
	}
	if e.sink != nil {
		e.sink.Done(e.status)
		return
	}
	e.done.Done(e.status)
}

// failAll ends all operations: the peer is gone. Nothing of them is being sent or
// received any more.
func (l *Link) failAll() {
	t := &l.ops
	t.mu.Lock()
	t.down = true
	var failed []ending
	for i := range t.ops {
		if o := &t.ops[i]; o.state != opFree {
			was := l.endLocked(o)
			was.status = fabric.StatusPeerDown
			failed = append(failed, was)
		}
	}
	waiting := t.waiting[t.first:]
	t.waiting, t.first = nil, 0
	t.mu.Unlock()
	for i := range failed {
		failed[i].tellEnd()
	}
	for i := range waiting {
		waiting[i].fail(fabric.StatusPeerDown)
	}
}

// gathered has memory for what goes to a device: a frame is one chunk.
var gathered = sync.Pool{New: func() any { b := make([]byte, 0, chunkSize); return &b }}

// lendBytes lends n bytes, until they are put back.
func lendBytes(n int) *[]byte {
	b := gathered.Get().(*[]byte)
	if cap(*b) < n {
		gathered.Put(b)
		big := make([]byte, n)
		return &big
	}
	*b = (*b)[:n]
	return b
}

func releaseGathered(b *[]byte) {
	if cap(*b) == chunkSize {
		gathered.Put(b)
	}
}

package stream

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
)

const (
	// ctlLimit is how many bytes of messages may wait to be sent before senders are
	// refused: what a peer that does not read costs. As much again may be on its way into
	// the connection.
	ctlLimit = 256 << 10
	// inlineMax is how much data of a transfer is copied to the messages: to have the
	// kernel gather it costs more.
	inlineMax = 1024
	// batchChunks is how many chunks are sent by one call.
	batchChunks = 8
	// maxSpare is the largest buffer that is kept.
	maxSpare = 2 * ctlLimit
)

// outbox is what is to be sent over a link.
//
// Concurrency: all methods may be called from many goroutines. mu is taken last,
// except for inflow.mu, which may not be taken under it.
type outbox struct {
	mu sync.Mutex

	started bool                 // guarded by mu: mailboxes are told by messages
	boxes   [fabric.VPIDs]uint32 // guarded by mu: until then
	closed  bool                 // guarded by mu
	ctl     []byte               // guarded by mu: messages
	returns []*inflow            // guarded by mu: flows with credits to give back
	pong    uint64               // guarded by mu: the ping to answer
	pongDue bool                 // guarded by mu
	starved bool                 // guarded by mu: flows were refused a slot
	xfers   []*xfer              // guarded by mu: transfers with chunks to send, from first on
	first   int                  // guarded by mu
	again   []chunk              // guarded by mu: chunks that were taken and not sent
	live    map[*xfer]struct{}   // guarded by mu: memory that is lent to the peer
	free    []*slot              // guarded by mu
}

// xfer is a transfer of which this node sends the data: the response to a GET, or a
// PUT.
type xfer struct {
	head   message // of its chunks
	data   []byte
	off    int          // guarded by outbox.mu: of the next chunk
	unsent atomic.Int64 // bytes that are not sent
	lease  link.Lease   // of a GET

	progress progress // guarded by outbox.mu or, of a PUT, by opTable.mu, as it says itself
}

// chunk is the chunk of a transfer at off.
type chunk struct {
	x   *xfer
	off int
}

func (o *outbox) init() {
	o.live = make(map[*xfer]struct{})
}

// openMailbox records that a mailbox has so many credits, and tells the peer.
func (o *outbox) openMailbox(v fabric.VPID, limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.started {
		o.boxes[v] = uint32(limit)
		return
	}
	o.addLocked(&message{kind: kindMailbox, flow: uint16(v), n: limit})
}

// openMailboxes returns the mailboxes that are open, as a hello has them. From now on they
// are told by messages.
func (o *outbox) openMailboxes() (b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started = true
	for v, limit := range o.boxes {
		if limit > 0 {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
			b = binary.LittleEndian.AppendUint32(b, limit)
		}
	}
	return b
}

// addMessage adds a message. What is not bounded by credits is bounded by maxOps and by the
// number of flows.
func (o *outbox) addMessage(m *message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addLocked(m)
}

// addLocked is add for the holder of mu.
func (o *outbox) addLocked(m *message) {
	if !o.closed {
		o.ctl = m.append(o.ctl)
	}
}

// addChunk adds the head of a chunk with its data, which is copied.
func (o *outbox) addChunk(m *message, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.ctl = append(m.append(o.ctl), data...)
	}
}

// tryChunk is addChunk, unless so much waits already that the data had better stay where
// it is.
func (o *outbox) tryChunk(m *message, data []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.ctl) > ctlLimit {
		return false
	}
	o.ctl = append(m.append(o.ctl), data...)
	return true
}

// giveBack has the credits of f given back, as many as f says when they are sent.
func (o *outbox) giveBack(f *inflow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && !f.listed {
		f.listed = true
		o.returns = append(o.returns, f)
	}
}

// answerPing has a ping answered. Of several only the last is.
func (o *outbox) answerPing(ping uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pong, o.pongDue = ping, true
}

// sendData has the data of a transfer sent. It returns false if the link is down.
func (o *outbox) sendData(x *xfer) bool {
	x.unsent.Store(int64(len(x.data)))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if x.lease != nil {
		o.live[x] = struct{}{}
	}
	o.pushLocked(x)
	return true
}

// pushLocked puts x after the other transfers. It belongs to the holder of mu.
func (o *outbox) pushLocked(x *xfer) {
	if o.first > len(o.xfers)/2 && len(o.xfers) == cap(o.xfers) {
		n := copy(o.xfers, o.xfers[o.first:])
		clear(o.xfers[n:])
		o.xfers, o.first = o.xfers[:n], 0
	}
	o.xfers = append(o.xfers, x)
}

// popLocked takes the next chunk, of the transfers in turn. It belongs to the holder of
// mu.
func (o *outbox) popLocked() (c chunk, ok bool) {
	if n := len(o.again); n > 0 {
		c, o.again[n-1] = o.again[n-1], chunk{}
		o.again = o.again[:n-1]
		return c, true
	}
	if o.first == len(o.xfers) {
		return chunk{}, false
	}
	x := o.xfers[o.first]
	o.xfers[o.first] = nil
	if o.first++; o.first == len(o.xfers) {
		o.xfers, o.first = o.xfers[:0], 0
	}
	c = chunk{x, x.off}
	x.off += chunkLen(len(x.data), x.off)
	if x.off < len(x.data) {
		o.pushLocked(x)
	}
	return c, true
}

// hasFor reports whether there is something for the connection c.
func (o *outbox) hasFor(c *conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return c.messages && (len(o.ctl) > 0 || len(o.returns) > 0 || o.pongDue) ||
		c.data && (len(o.again) > 0 || o.first < len(o.xfers))
}

// takeLocked fills the batch of c, which is empty, with what there is. It reports
// whether flows were refused a slot which is there now. It belongs to the holder of mu.
func (o *outbox) takeLocked(c *conn) (resume bool) {
	b := &c.batch
	if c.messages {
		for i, f := range o.returns {
			f.listed = false
			o.ctl = (&message{kind: kindReturn, flow: f.id, word: f.acked.Load()}).append(o.ctl)
			o.returns[i] = nil
		}
		o.returns = o.returns[:0]
		if o.pongDue {
			o.pongDue = false
			o.ctl = (&message{kind: kindPong, word: o.pong}).append(o.ctl)
		}
		b.buf, o.ctl = o.ctl, b.buf[:0]
		b.ctl = b.buf
		resume, o.starved = o.starved, false
	}
	for c.data && b.n < batchChunks {
		k, ok := o.popLocked()
		if !ok {
			break
		}
		b.addChunk(k)
	}
	b.more = c.data && b.n > 0 && (len(o.again) > 0 || o.first < len(o.xfers))
	return resume
}

// putBack takes chunks back which were not sent, the last first.
func (o *outbox) putBack(list []pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(list) - 1; i >= 0; i-- {
		o.again = append(o.again, list[i].chunk)
	}
}

// noteSent records that the data of a GET was sent. It returns false if the link went
// down, and close has returned x.
func (o *outbox) noteSent(x *xfer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, mine := o.live[x]
	delete(o.live, x)
	return mine
}

// close takes nothing any more, and returns what is lent to the peer.
func (o *outbox) close() (lent []*xfer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for x := range o.live {
		lent = append(lent, x)
	}
	o.ctl, o.returns, o.xfers, o.again, o.live = nil, nil, nil, nil, nil
	o.first, o.pongDue = 0, false
	return lent
}

// batch is what a connection sends by one call. It belongs to the holder of conn.wmu.
type batch struct {
	buf    []byte // of ctl; kept for the next
	ctl    []byte // what is left of the messages
	chunks [batchChunks]pending
	n, cur int
	more   bool // another batch follows at once
}

// pending is a chunk that is being sent.
type pending struct {
	chunk
	head    [putDataLen]byte
	headLen int
	sent    int // of head and data
}

func (p *pending) data() []byte { return p.x.data[p.off : p.off+chunkLen(len(p.x.data), p.off)] }

func (b *batch) addChunk(c chunk) {
	p := &b.chunks[b.n]
	b.n++
	p.chunk, p.sent = c, 0
	m := c.x.head
	m.off = c.off
	p.headLen = len(m.append(p.head[:0]))
}

func (b *batch) empty() bool { return len(b.ctl) == 0 && b.cur == b.n }

// appendUnsent appends what is left to be sent.
func (b *batch) appendUnsent(iov [][]byte) [][]byte {
	if len(b.ctl) > 0 {
		iov = append(iov, b.ctl)
	}
	for i := b.cur; i < b.n; i++ {
		p := &b.chunks[i]
		data, sent := p.data(), p.sent
		if sent < p.headLen {
			iov = append(iov, p.head[sent:p.headLen])
			sent = p.headLen
		}
		iov = append(iov, data[sent-p.headLen:])
	}
	return iov
}

// sent is a transfer of which all was sent.
type sent struct {
	get *xfer  // or nil
	put uint32 // the operation: its xfer may be used again when the link goes down
}

// noteWritten records that n bytes were sent, and appends to ends the transfers that are sent
// whole now.
func (b *batch) noteWritten(n int, ends []sent) []sent {
	k := min(n, len(b.ctl))
	b.ctl, n = b.ctl[k:], n-k
	for n > 0 {
		p := &b.chunks[b.cur]
		size := len(p.data())
		k := min(n, p.headLen+size-p.sent)
		p.sent, n = p.sent+k, n-k
		p.x.progress.moved.Add(uint64(k))
		if p.sent < p.headLen+size {
			return ends
		}
		if p.x.unsent.Add(-int64(size)) == 0 {
			if p.x.lease != nil {
				ends = append(ends, sent{get: p.x})
			} else {
				ends = append(ends, sent{put: p.x.head.op})
			}
		}
		p.chunk = chunk{}
		b.cur++
	}
	if b.empty() {
		b.cur, b.n = 0, 0
		if cap(b.buf) > maxSpare {
			b.buf = nil
		}
	}
	return ends
}

// takeUnstarted gives up the chunks of which nothing was sent, and lends them until the next
// add.
func (b *batch) takeUnstarted() []pending {
	from := b.cur
	if from < b.n && b.chunks[from].sent > 0 {
		from++
	}
	list := b.chunks[from:b.n]
	b.n = from
	return list
}

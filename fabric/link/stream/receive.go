package stream

import (
	"fmt"

	"exnet/fabric/link"
)

const (
	// readSize is how much is read at a time where messages come. Where chunks come it is
	// less: what is read beyond a chunk's head has to be copied once more.
	readSize  = 64 << 10
	chunkRead = 4 << 10
)

// incoming is a chunk that is being received.
type incoming struct {
	get   *op
	put   *put
	n     int
	place []byte // what is left of its place; nil: it is thrown away
}

// receiver takes the bytes of one connection apart. It belongs to the connection's
// reader, and took to the pump.
type receiver struct {
	buf       []byte
	r, w      int      // what was read and not taken is buf[r:w]
	chunkLeft int      // bytes of the chunk that are still to come; then buf is empty
	in        incoming // the chunk
	size      int      // of the next read
}

func (x *receiver) init() { x.buf, x.size = make([]byte, readSize+maxMessage), chunkRead }

// nextPlace is where the next bytes go: place first, then more.
func (x *receiver) nextPlace() (place, more []byte) {
	switch {
	case x.chunkLeft > 0 && x.in.place != nil:
		return x.in.place, x.buf[:chunkRead]
	case x.chunkLeft > 0:
		return nil, x.buf[:min(x.chunkLeft, len(x.buf))]
	}
	x.w = copy(x.buf, x.buf[x.r:x.w])
	x.r = 0
	return nil, x.buf[x.w:min(x.w+x.size, len(x.buf))]
}

// takeChunk takes up to n bytes of the chunk that were read to their place, or with from
// still are to be brought there, and returns how many that were.
func (x *receiver) takeChunk(n int, from []byte) int {
	k := min(n, x.chunkLeft)
	if x.in.place != nil {
		if from != nil {
			copy(x.in.place[:k], from)
		}
		x.in.place = x.in.place[k:]
	}
	x.chunkLeft -= k
	return k
}

// takeRead is called by the pump: n bytes were read to where want has said. An error is
// the peer's fault.
func (l *Link) takeRead(c *conn, n int) error {
	x := &c.rx
	if x.chunkLeft > 0 {
		k := x.takeChunk(n, nil)
		l.chunkArrived(&x.in, k)
		n -= k
		if x.chunkLeft > 0 {
			return nil
		}
		l.gotChunk(&x.in)
		x.r, x.w = 0, 0
	}
	full := n >= x.size
	x.w += n
	var m message
	for x.r < x.w {
		k, err := m.decode(x.buf[x.r:x.w])
		if err != nil {
			return err
		}
		if k == 0 {
			break
		}
		x.r += k
		if m.kind != kindGetData && m.kind != kindPutData {
			if err := l.handleMessage(c, &m); err != nil {
				return err
			}
			continue
		}
		full = false
		x.size = chunkRead
		if err := l.takeChunk(c, &m); err != nil {
			return err
		}
		got := x.takeChunk(x.w-x.r, x.buf[x.r:x.w])
		l.chunkArrived(&x.in, got)
		x.r += got
		if x.chunkLeft > 0 {
			break
		}
		l.gotChunk(&x.in)
	}
	if full {
		x.size = readSize
	}
	if x.r == x.w {
		x.r, x.w = 0, 0
	}
	return nil
}

// takeChunk is called by the pump: a chunk begins.
func (l *Link) takeChunk(c *conn, m *message) (err error) {
	in := incoming{}
	if m.kind == kindGetData {
		in, err = l.getData(m)
	} else {
		in, err = l.putData(m)
	}
	if err != nil {
		return err
	}
	c.rx.in, c.rx.chunkLeft = in, in.n
	return nil
}

// gotChunk is called by the pump: a chunk is in its place.
func (l *Link) gotChunk(in *incoming) {
	if in.get != nil {
		l.gotData(in.get, in.n)
	} else {
		l.gotPut(in.put, in.n)
	}
	*in = incoming{}
}

// handleMessage is called by the pump: it does what a message says that has no data. An
// error is the peer's fault.
func (l *Link) handleMessage(c *conn, m *message) error {
	if !c.messages {
		return fmt.Errorf("message of kind %d on a connection for data", m.kind)
	}
	switch m.kind {
	case kindVELO:
		return l.deliverMessage(m)
	case kindMailbox:
		l.boxes[m.flow].Store(uint32(m.n))
		return nil
	case kindOpen:
		return l.acceptFlow(m)
	case kindGet:
		return l.serveGet(m)
	case kindGetEnd:
		return l.getRefused(m)
	case kindPutEnd:
		return l.putEnded(m)
	case kindPing:
		l.beat.noteAsked()
		l.out.answerPing(m.word)
		l.dirty.Store(true)
		return nil
	case kindPong:
		return l.beat.pingAnswered(l, m.word)
	}
	outs := *l.outs.Load()
	if int(m.flow) >= len(outs) {
		return fmt.Errorf("word of flow %d, which was not opened", m.flow)
	}
	f := outs[m.flow]
	if m.kind == kindDown {
		f.dead.Store(true)
		l.calls.addCall(call{do: callDown, out: f})
		return nil
	}
	due, err := f.noteReturned(m.word)
	if due {
		l.calls.addCall(call{do: callReturn, out: f})
	}
	return err
}

// callKind is what is left to do when the pump's lock is given back, because it may run
// handlers.
type callKind uint8

const (
	callRaise  callKind = iota + 1 // a mailbox got messages
	callReturn                     // a flow got the credits that somebody waits for
	callDown                       // a flow ends
	callGot                        // a GET ends, its data is there
	callDone                       // an operation ends
	callLease                      // memory was read
	callPut                        // the data of a PUT is there
)

type call struct {
	do    callKind
	read  bool
	in    *inflow
	out   *outflow
	end   ending
	put   *put
	lease link.Lease
}

// callList belongs to the pump until it is taken.
type callList struct{ list []call }

func (c *callList) addCall(k call) { c.list = append(c.list, k) }

// takeCalls is the last step of the pump: what is left to do, or nil. perform
// follows.
func (l *Link) takeCalls() *callList {
	calls := l.calls
	if len(calls.list) == 0 {
		return nil
	}
	for i := range calls.list {
		if k := &calls.list[i]; k.do == callRaise {
			k.in.raised = false
		}
	}
	if l.calls = l.spare.Swap(nil); l.calls == nil {
		l.calls = new(callList)
	}
	return calls
}

// performCalls does what may run handlers.
func (l *Link) performCalls(calls *callList) {
	if calls == nil {
		return
	}
	for i := range calls.list {
		k := &calls.list[i]
		switch k.do {
		case callRaise:
			k.in.inbox.Target.Raise()
		case callReturn:
			k.out.credit.Return(k.out.Consumed())
		case callDown:
			k.out.credit.Down()
		case callGot:
			k.end.endGet()
		case callDone:
			k.end.tellEnd()
		case callLease:
			l.serving.owed.Add(-1)
			k.lease.End(k.read)
		case callPut:
			l.endPut(k.put)
		}
	}
	clear(calls.list)
	calls.list = calls.list[:0]
	l.spare.Store(calls)
}

// endByBreach takes the link down: the peer is at fault.
func (l *Link) endByBreach(err error) { l.takeDown(fmt.Errorf("%w: %w", ErrBreach, err)) }

package wire

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// stream is data that is being sent, fragment by fragment: the response to a GET, or
// a PUT.
type stream struct {
	kind   kind
	number uint32
	data   []byte
	off    int
	ended  func() // all of it has been copied; the holder of mu calls it
}

// appendFragment appends the next fragment's message to b.
func (s *stream) appendFragment(b []byte) []byte {
	n := min(rma.MTU, len(s.data)-s.off)
	m := message{kind: s.kind, number: s.number, n: uint32(s.off), data: s.data[s.off : s.off+n]}
	s.off += n
	return m.append(b)
}

// op is an operation of this node, on the way.
type op struct {
	sink     link.Sink // of a GET; nil: a PUT
	done     link.Done
	getBytes int // bytes of a GET
	got      int
	err      error // of the sink
}

// startOrQueue starts an operation, or has it wait for a tag.
func (l *Link) startOrQueue(t *tags, o *op, start func(number uint32)) {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		o.done.Done(fabric.StatusPeerDown)
		return
	}
	defer l.mu.Unlock()
	number, ok := t.takeTag(o)
	if !ok {
		t.waiting = append(t.waiting, pending{o, start})
		return
	}
	start(number)
	l.transmitQueued(time.Now())
}

// Get implements link.Port.
func (p port) Get(g link.Get, s link.Sink) {
	l := p.Link
	l.startOrQueue(&l.gets, &op{sink: s, done: s, getBytes: g.Len}, func(number uint32) {
		l.appendMessage(getMessage(number, g))
	})
}

// Put implements link.Port.
func (p port) Put(r link.Put, data []byte, d link.Done) {
	l := p.Link
	l.startOrQueue(&l.putting, &op{done: d}, func(number uint32) {
		l.appendMessage(putMessage(number, r, len(data)))
		a := &l.lanes[channelOf[kindPutData]]
		a.streams = append(a.streams, &stream{kind: kindPutData, number: number, data: data})
	})
}

// operationEnded is the reader's: an operation of this node has ended.
func (l *Link) operationEnded(t *tags, number uint32, s fabric.Status) error {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	o, err := t.operationOf(number)
	if err != nil {
		return err
	}
	if s == fabric.StatusOK && o.got != o.getBytes {
		return fmt.Errorf("GET of %d bytes ended after %d", o.getBytes, o.got)
	}
	if o.sink == nil { // refused before all was sent
		a := &l.lanes[channelOf[kindPutData]]
		a.streams = slices.DeleteFunc(a.streams, func(st *stream) bool { return st.number == number && st.kind == kindPutData })
	}
	t.freeTag(number)
	t.startWaiting()
	l.transmitQueued(now)
	l.up.queueCall(func() { o.done.Done(s) })
	return nil
}

// takeFragment is the reader's: a fragment of the response to a GET.
func (l *Link) takeFragment(m *message) error {
	l.mu.Lock()
	o, err := l.gets.operationOf(m.number)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if int(m.n) != o.got || len(m.data) == 0 || o.got+len(m.data) > o.getBytes {
		return fmt.Errorf("%d bytes at %d of a GET of %d after %d", len(m.data), m.n, o.getBytes, o.got)
	}
	if o.err == nil {
		o.err = o.sink.Data(o.got, foreign.Of(m.data))
	}
	o.got += len(m.data)
	return nil
}

// lease is memory that is being sent to the peer.
type lease struct{ link.Lease }

// serveGet is the reader's: the peer asks for data.
func (l *Link) serveGet(m *message) error {
	number, tag := m.number, m.number%maxGets
	l.mu.Lock()
	used := l.serving[tag] != nil
	l.mu.Unlock()
	if used {
		return fmt.Errorf("GET %d: its tag is in use", number)
	}
	le, status := l.nic.LendGet(l.peer, m.asGet())
	if status != fabric.StatusOK {
		l.queueMessage(&message{kind: kindGetEnd, number: number, status: status})
		return nil
	}
	s := &lease{le}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving[tag] = s
	a := &l.lanes[channelOf[kindData]]
	a.streams = append(a.streams, &stream{kind: kindData, number: number, data: le.Bytes(), ended: func() {
		l.serving[tag] = nil
		l.appendMessage(&message{kind: kindGetEnd, number: number, status: fabric.StatusOK})
		l.up.queueCall(func() { s.End(true) })
	}})
	l.transmitQueued(time.Now())
	return nil
}

// put is a PUT of the peer that is coming in.
type put struct {
	request link.Put
	data    []byte // so far
	want    int
}

// servePut is the reader's: the peer is about to send data.
func (l *Link) servePut(m *message) error {
	if err := l.notePut(m); err != nil {
		return err
	}
	if l.puts[m.number] != nil {
		return fmt.Errorf("PUT %d twice", m.number)
	}
	l.puts[m.number] = &put{request: m.asPut(), want: int(m.n)}
	return nil
}

// putData is the reader's: a fragment of a PUT.
func (l *Link) putData(m *message) error {
	p := l.puts[m.number]
	switch {
	case p == nil:
		return fmt.Errorf("data of PUT %d, which has not begun", m.number)
	case int(m.n) != len(p.data) || len(m.data) == 0 || len(p.data)+len(m.data) > p.want:
		return fmt.Errorf("%d bytes at %d of a PUT of %d after %d", len(m.data), m.n, p.want, len(p.data))
	}
	p.data = append(p.data, m.data...) // grows with what has come: a length is only a claim
	if len(p.data) < p.want {
		return nil
	}
	delete(l.puts, m.number)
	number := m.number
	l.up.queueCall(func() { l.nic.ServePut(l.peer, p.request, foreign.Of(p.data), putDone{l, number}) })
	return nil
}

// putDone answers a PUT of the peer.
type putDone struct {
	l      *Link
	number uint32
}

// Done implements link.Done.
func (d putDone) Done(s fabric.Status) {
	d.l.queueMessage(&message{kind: kindPutEnd, number: d.number, status: s})
}

// handleMessage is the reader's: it does what a message says. An error is a breach.
func (l *Link) handleMessage(m *message) error {
	switch m.kind {
	case kindOpen:
		return l.acceptFlow(m)
	case kindVELO:
		return l.deliverMessage(m)
	case kindGet:
		return l.serveGet(m)
	case kindData:
		return l.takeFragment(m)
	case kindGetEnd:
		return l.operationEnded(&l.gets, m.number, m.status)
	case kindPut:
		return l.servePut(m)
	case kindPutData:
		return l.putData(m)
	case kindPutEnd:
		return l.operationEnded(&l.putting, m.number, m.status)
	case kindProbe:
		return nil
	}
	l.mu.Lock()
	var f *outflow
	if int(m.number) < len(l.outs) {
		f = l.outs[m.number]
	}
	l.mu.Unlock()
	if f == nil {
		return fmt.Errorf("word of flow %d, which was not opened", m.number)
	}
	switch m.kind {
	case kindOpened:
		return f.mailboxAnswered(m.id, int(m.n))
	case kindReturn:
		if err := f.noteReturned(m.word); err != nil {
			return err
		}
		total := m.word
		l.up.queueCall(func() { f.credit.Return(total) })
		return nil
	case kindDown:
		f.close()
		l.up.queueCall(f.credit.Down)
		return nil
	}
	return errors.New("message of an unknown kind")
}

package wire

import (
	"errors"
	"fmt"
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

// next appends the next fragment's message to b.
func (s *stream) next(b []byte) []byte {
	n := min(rma.MTU, len(s.data)-s.off)
	m := message{kind: s.kind, number: s.number, n: uint32(s.off), data: s.data[s.off : s.off+n]}
	s.off += n
	return m.append(b)
}

// op is an operation of this node, on the way.
type op struct {
	sink link.Sink // of a GET
	done link.Done
	want int // bytes of a GET
	got  int
	err  error // of the sink
}

// noOp tells an operation that waits that the link is down.
const noOp = ^uint32(0)

// begin starts an operation, or has it wait until another has ended.
func (l *Link) begin(start func(number uint32)) {
	l.mu.Lock()
	switch {
	case l.closing:
		l.mu.Unlock()
		start(noOp)
		return
	case len(l.ops) >= maxOps:
		l.waiting = append(l.waiting, start)
	default:
		l.start(start)
		l.transmit(time.Now())
	}
	l.mu.Unlock()
}

// start gives an operation its number. It belongs to the holder of mu.
func (l *Link) start(f func(number uint32)) {
	for l.ops[l.nextOp] != nil || l.nextOp == noOp {
		l.nextOp++
	}
	number := l.nextOp
	l.nextOp++
	f(number)
}

// Get implements link.Port.
func (p port) Get(g link.Get, s link.Sink) {
	l := p.Link
	l.begin(func(number uint32) {
		if number == noOp {
			s.Done(fabric.StatusPeerDown)
			return
		}
		l.ops[number] = &op{sink: s, done: s, want: g.Len}
		l.queue(getMessage(number, g))
	})
}

// Put implements link.Port.
func (p port) Put(r link.Put, data []byte, d link.Done) {
	l := p.Link
	l.begin(func(number uint32) {
		if number == noOp {
			d.Done(fabric.StatusPeerDown)
			return
		}
		l.ops[number] = &op{done: d}
		l.queue(putMessage(number, r, len(data)))
		l.streams = append(l.streams, &stream{kind: kindPutData, number: number, data: data})
	})
}

// ended is the reader's: an operation of this node has ended.
func (l *Link) ended(number uint32, s fabric.Status, get bool) error {
	now := time.Now()
	l.mu.Lock()
	o := l.ops[number]
	if o == nil || (o.sink != nil) != get {
		l.mu.Unlock()
		return fmt.Errorf("end of operation %d, which is not under way", number)
	}
	if s == fabric.StatusOK && o.got != o.want {
		l.mu.Unlock()
		return fmt.Errorf("GET of %d bytes ended after %d", o.want, o.got)
	}
	delete(l.ops, number)
	if !get { // refused before all was sent
		for i, st := range l.streams {
			if st.kind == kindPutData && st.number == number {
				l.streams = append(l.streams[:i:i], l.streams[i+1:]...)
				break
			}
		}
	}
	if len(l.waiting) > 0 {
		f := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.start(f)
	}
	l.transmit(now)
	l.mu.Unlock()
	l.up.add(func() { o.done.Done(s) })
	return nil
}

// data is the reader's: a fragment of the response to a GET.
func (l *Link) data(m *message) error {
	l.mu.Lock()
	o := l.ops[m.number]
	l.mu.Unlock()
	if o == nil || o.sink == nil {
		return fmt.Errorf("data of operation %d, which is not under way", m.number)
	}
	if int(m.n) != o.got || len(m.data) == 0 || o.got+len(m.data) > o.want {
		return fmt.Errorf("%d bytes at %d of a GET of %d after %d", len(m.data), m.n, o.want, o.got)
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
	number := m.number
	if err := l.owe(m); err != nil {
		return err
	}
	l.mu.Lock()
	twice := l.serving[number] != nil
	l.mu.Unlock()
	if twice {
		return fmt.Errorf("GET %d twice", number)
	}
	le, status := l.nic.LendGet(l.peer, m.get())
	if status != fabric.StatusOK {
		l.post(&message{kind: kindGetEnd, number: number, status: status})
		return nil
	}
	s := &lease{le}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serving[number] = s
	l.streams = append(l.streams, &stream{kind: kindData, number: number, data: le.Bytes(), ended: func() {
		delete(l.serving, number)
		l.queue(&message{kind: kindGetEnd, number: number, status: fabric.StatusOK})
		l.up.add(func() { s.End(true) })
	}})
	l.transmit(time.Now())
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
	if err := l.owe(m); err != nil {
		return err
	}
	if l.puts[m.number] != nil {
		return fmt.Errorf("PUT %d twice", m.number)
	}
	l.puts[m.number] = &put{request: m.put(), want: int(m.n)}
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
	l.up.add(func() { l.nic.ServePut(l.peer, p.request, foreign.Of(p.data), putDone{l, number}) })
	return nil
}

// putDone answers a PUT of the peer.
type putDone struct {
	l      *Link
	number uint32
}

// Done implements link.Done.
func (d putDone) Done(s fabric.Status) {
	d.l.post(&message{kind: kindPutEnd, number: d.number, status: s})
}

// take is the reader's: it does what a message says. An error is a breach.
func (l *Link) take(m *message) error {
	switch m.kind {
	case kindOpen:
		return l.open(m)
	case kindVELO:
		return l.deliver(m)
	case kindGet:
		return l.serveGet(m)
	case kindData:
		return l.data(m)
	case kindGetEnd:
		return l.ended(m.number, m.status, true)
	case kindPut:
		return l.servePut(m)
	case kindPutData:
		return l.putData(m)
	case kindPutEnd:
		return l.ended(m.number, m.status, false)
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
		return f.answer(m.id, int(m.n))
	case kindReturn:
		if err := f.returned(m.word); err != nil {
			return err
		}
		total := m.word
		l.up.add(func() { f.credit.Return(total) })
		return nil
	case kindDown:
		f.close()
		l.up.add(f.credit.Down)
		return nil
	}
	return errors.New("message of an unknown kind")
}

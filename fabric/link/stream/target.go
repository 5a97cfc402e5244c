package stream

import (
	"fmt"
	"sync"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/rma"
	"exnet/foreign"
)

// maxGather is how much of the peer's PUTs to devices is gathered at a time.
const maxGather = 2 * rma.MaxTransfer

// put is a PUT of the peer that is coming in. It belongs to the pump.
type put struct {
	m       message // its first chunk
	chunks          // that came
	landing link.Landing
	place   []byte // landing's memory; or gathered; nil: it is refused
	gather  *[]byte
	status  fabric.Status

	progress progress // guarded by serveTable.mu as it says itself
}

// serveTable is the target's side of the operations under way.
type serveTable struct {
	owed      atomic.Int32 // operations of the peer whose end was not sent yet
	gathering atomic.Int64 // bytes of PUTs to devices
	puts      map[uint32]*put

	mu    sync.Mutex
	lands map[*put]struct{} // guarded by mu: of the puts, those with a landing
}

func (t *serveTable) init() {
	t.puts, t.lands = make(map[uint32]*put), make(map[*put]struct{})
}

// countOwed notes an operation of the peer; an error if that has more on their way than it
// may. It counts until its end is sent, so that the peer cannot have ends queue up by
// asking for what is refused.
func (t *serveTable) countOwed() error {
	if n := t.owed.Add(1); n > 2*maxOps {
		return fmt.Errorf("%d operations at a time", n)
	}
	return nil
}

// serveGet is called by the pump: the peer asks for data.
func (l *Link) serveGet(m *message) error {
	if err := l.serving.countOwed(); err != nil {
		return err
	}
	le, st := l.nic.LendGet(l.cfg.Peer, m.asGet())
	if st != fabric.StatusOK {
		l.serving.owed.Add(-1)
		return l.refuseOp(kindGetEnd, m.op, st)
	}
	x := &xfer{head: message{kind: kindGetData, op: m.op}, data: le.Bytes(), lease: le}
	l.dirty.Store(true)
	if len(x.data) <= inlineMax && l.out.tryChunk(&x.head, x.data) {
		l.calls.addCall(call{do: callLease, lease: le, read: true})
	} else if !l.out.sendData(x) {
		l.calls.addCall(call{do: callLease, lease: le})
	}
	return nil
}

// getSent records that all data of a GET was sent.
func (l *Link) getSent(x *xfer) {
	if l.out.noteSent(x) {
		l.serving.owed.Add(-1)
		x.lease.End(true)
	}
}

// refuseOp tells the peer that an operation ends. An error if it takes no answers: it asks,
// and does not read.
func (l *Link) refuseOp(k kind, op uint32, st fabric.Status) error {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if len(l.out.ctl) > 4*ctlLimit {
		return fmt.Errorf("operations without an end, and %d bytes of answers not read", len(l.out.ctl))
	}
	l.out.addLocked(&message{kind: k, op: op, status: st})
	l.dirty.Store(true)
	return nil
}

// putData is called by the pump: a chunk of a PUT of the peer begins. The first to
// come brings the PUT.
func (l *Link) putData(m *message) (incoming, error) {
	t := &l.serving
	p := t.puts[m.op]
	if p == nil {
		var err error
		if p, err = l.openPut(m); err != nil {
			return incoming{}, err
		}
		t.puts[m.op] = p
	}
	if m.asPut() != p.m.asPut() || m.n != p.m.n || !p.markBegun(m.off) {
		return incoming{}, fmt.Errorf("chunk at %d is not part of PUT %d", m.off, m.op)
	}
	in := incoming{put: p, n: chunkLen(m.n, m.off)}
	if p.place != nil {
		in.place = p.place[m.off : m.off+in.n]
	}
	return in, nil
}

// openPut is called by the pump: it opens the place of a PUT.
func (l *Link) openPut(m *message) (*put, error) {
	t := &l.serving
	if err := t.countOwed(); err != nil {
		return nil, err
	}
	p := &put{m: *m}
	p.landing, p.status = l.nic.LendPut(l.cfg.Peer, m.asPut(), m.n)
	switch {
	case p.status != fabric.StatusOK:
	case p.landing != nil:
		p.place = p.landing.Bytes()
		t.mu.Lock()
		t.lands[p] = struct{}{}
		t.mu.Unlock()
	case t.gathering.Add(int64(m.n)) > maxGather:
		t.gathering.Add(-int64(m.n))
		p.status = fabric.StatusOverrun
	default:
		l.count.Bounced.Add(1)
		p.gather = lendBytes(m.n)
		p.place = *p.gather
	}
	return p, nil
}

// gotPut is called by the pump: a chunk of a PUT has come.
func (l *Link) gotPut(p *put, n int) {
	p.chunks.n += n
	if p.chunks.n < p.m.n {
		return
	}
	delete(l.serving.puts, p.m.op)
	l.calls.addCall(call{do: callPut, put: p})
}

// endPut ends a PUT of the peer whose data has come.
func (l *Link) endPut(p *put) {
	t := &l.serving
	switch {
	case p.landing != nil:
		t.mu.Lock()
		_, mine := t.lands[p]
		delete(t.lands, p)
		t.mu.Unlock()
		if !mine { // the link went down
			return
		}
		p.landing.End(true)
	case p.gather != nil:
		l.nic.ServePut(l.cfg.Peer, p.m.asPut(), foreign.Of(p.place), putDone{l, p})
		return
	}
	l.putEnd(p.m.op, p.status)
}

// putDone is told how a PUT of the peer to a device has ended.
type putDone struct {
	l *Link
	p *put
}

// Done implements link.Done.
func (d putDone) Done(s fabric.Status) {
	d.l.serving.gathering.Add(-int64(d.p.m.n))
	releaseGathered(d.p.gather)
	d.l.putEnd(d.p.m.op, s)
}

// putEnd tells the peer how its PUT has ended.
func (l *Link) putEnd(op uint32, s fabric.Status) {
	l.serving.owed.Add(-1)
	if err := l.refuseOp(kindPutEnd, op, s); err != nil {
		l.endByBreach(err)
	}
	l.scheduleSend()
}

// endAll takes back what the peer was reading and writing. Nothing of it is being sent or
// received any more.
func (l *Link) endAll() {
	for _, x := range l.out.close() {
		x.lease.End(false)
	}
	t := &l.serving
	t.mu.Lock()
	lands := t.lands
	t.lands = nil
	t.mu.Unlock()
	for p := range lands {
		p.landing.End(false)
	}
	for _, p := range t.puts {
		if p.gather != nil {
			releaseGathered(p.gather)
		}
	}
	t.puts = nil
}

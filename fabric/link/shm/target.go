package shm

import (
	"sync"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/foreign"
)

// lent is what a GET of the peer reads: memory of a region, or a copy of it.
type lent struct {
	lease  link.Lease
	bounce []byte
}

// endLoan takes back what a peer has read, or can no longer read.
func (l *Link) endLoan(s lent, read bool) {
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

// checkFree is called by the pump: it checks that the peer's number is free.
func (t *serveTable) checkFree(m *message) bool {
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

// takeBack is called by the pump: it takes back what the peer has read.
func (t *serveTable) takeBack(id uint16) (lent, bool) {
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
	ls, st := l.nic.LendGet(l.peer, m.asGet())
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
		l.endLoan(s, false)
		return
	}
	l.out.sendMessage(&a)
}

// asGet returns the GET that is in m.
func (m *message) asGet() link.Get {
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
	var data foreign.Memory
	if m.flags&flagInline != 0 {
		copy(d.inline[:], m.inline[:])
		data = foreign.Of(d.inline[:m.n])
	} else {
		var st fabric.Status
		if data, st = l.farArena.borrowBytes(m.place, m.n); st != fabric.StatusOK {
			d.Done(st)
			return
		}
		d.borrowed = true
		l.near.taken.Add(uint64(m.n))
	}
	l.nic.ServePut(l.peer, link.Put{
		From: m.from, To: m.to, Remote: atu.NLA(m.remote),
		Immediate: m.flags&flagImmediate != 0, Notify: m.flags&flagNotify != 0,
	}, data, d)
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
	l.out.sendMessage(&message{kind: kindAnswer, id: d.id, status: s})
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
		l.endLoan(s, false)
	}
}

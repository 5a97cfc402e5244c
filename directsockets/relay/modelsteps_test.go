package relay

import "slices"

// flush is Engine.flushChannel.
func (m *chanModel) flush(w *mWorld, i int, batch bool) {
	n := &w.nodes[i]
	n.touched = false
	if n.greeted != n.far+1 {
		if !m.send(w, i, mMessage{k: mHello, own: n.own, far: n.far}) {
			return
		}
		n.greeted = n.far + 1
	}
	if n.far == 0 && m.fault != faultNoWait {
		return
	}
	for n.owed[0].k != 0 {
		if m.fault == faultTakenRoom {
			p := slices.IndexFunc(n.places[:], func(p mPlace) bool { return p.state == placeFree })
			if p < 0 {
				return // until there is room
			}
			n.places[p].state = placeFilling
			push(n.order[:], int8(p+1))
			n.places[p].tells = n.owed[0].place + 1
			n.places[p].number = n.owed[0].number
		} else if !m.send(w, i, n.owed[0]) {
			return
		}
		if m.fault != faultEarlyLend {
			n.stage[n.owed[0].place] = mStage{}
		}
		pop(n.owed[:])
	}
	for n.order[0] != 0 && m.ship(w, i, batch) {
		pop(n.order[:])
		m.relieve(n)
	}
}

// ship is Engine.sendPlace.
func (m *chanModel) ship(w *mWorld, i int, batch bool) bool {
	n := &w.nodes[i]
	at := n.order[0] - 1
	p := &n.places[at]
	if p.state == placeFilling {
		if !batch || p.tells != 0 || !n.met { // LEND comes after HELLO
			m.step(n, p, eventSplit)
		} else {
			put := mPut{1, at, n.batches, n.own, n.far}
			if !push(n.puts[:], put) {
				n.touched = true // Engine.later
				return false
			}
			p.number = n.batches
			n.batches++
			m.step(n, p, eventPut)
		}
	}
	switch p.state {
	case placeSingles:
		if p.tells != 0 {
			if !m.send(w, i, mMessage{k: mTaken, place: p.tells - 1, number: p.number}) {
				return false
			}
			m.step(n, p, eventSent)
			return true
		}
		for p.has.from <= p.has.to {
			if !m.send(w, i, mMessage{k: mSingle, from: p.has.from, to: p.has.from}) {
				return false
			}
			p.has.from++
		}
		m.step(n, p, eventSent)
		return true
	case placeFree: // a fault: it was freed before BATCH was sent
		return m.send(w, i, mMessage{k: mBatch, place: at, number: p.number, from: p.has.from, to: p.has.to})
	}
	if !m.send(w, i, mMessage{k: mBatch, place: at, number: p.number, from: p.has.from, to: p.has.to}) {
		return false
	}
	m.step(n, p, eventTold)
	return true
}

// land has the link write what is in a place now to the peer, and tell it.
func (m *chanModel) land(w *mWorld, i, put int) {
	n, o := &w.nodes[i], &w.nodes[1-i]
	p := &n.puts[put]
	p.state = 2
	if p.session != n.own || p.peerSession != n.far { // a region that is being closed: it is read, and not taken
		if m.fault != faultNoNumber || p.peerSession != 0 && p.peerSession != o.own {
			return
		}
	}
	if p.peerSession != o.own || o.far != p.session {
		return // the region that it writes to is closed
	}
	s := &o.stage[p.place]
	if s.state != stageFree && m.fault != faultEarlyLend {
		m.bad("a PUT lands in a place in state %d", s.state)
		return
	}
	*s = mStage{stageArrived, n.places[p.place].has}
	if m.fault == faultEarlyLend {
		push(o.owed[:], mMessage{k: mTaken, place: p.place, number: p.number})
		o.touched = true
	}
	m.unhold(o)
}

// ended is Engine.endPut.
func (m *chanModel) ended(n *mNode, put int) {
	was := n.puts[put]
	copy(n.puts[put:], n.puts[put+1:])
	n.puts[mPuts-1] = mPut{}
	if was.session != n.own || was.peerSession != n.far {
		return // of a region that is closed
	}
	p := &n.places[was.place]
	if m.fault == faultFreeEarly && p.state == placePutting {
		*p = mPlace{} // and it stays in order
		m.relieve(n)
		return
	}
	if m.fault == faultTakenFree && p.number != was.number {
		return
	}
	m.step(n, p, eventEnded)
}

// read takes the next message out of a mailbox, which gives credit back.
func (m *chanModel) read(w *mWorld, i int) {
	n, o := &w.nodes[i], &w.nodes[1-i]
	msg := n.box[0]
	pop(n.box[:])
	o.credits++
	switch {
	case msg.k == mHello:
		m.meets(n, msg)
	case !n.met && m.fault != faultNoHello:
		if !n.answered {
			n.answered, n.greeted, n.touched = true, 0, true
		}
	case n.held[0].k != 0 && m.fault != faultNoHold || msg.k == mBatch && !m.unpack(n, msg):
		if !push(n.held[:], msg) {
			panic("the model holds too little")
		}
	case msg.k != mBatch:
		m.hear(n, msg)
	}
}

// meets is Engine.takeHello.
func (m *chanModel) meets(n *mNode, h mMessage) {
	switch {
	case h.own < n.far:
		return
	case n.far == 0:
		n.far = h.own
	case h.own != n.far:
		m.renew(n, n.own, h.own)
	}
	if h.far != n.own && m.fault != faultAnyHello {
		n.greeted = 0
	} else {
		n.met = true
	}
	n.touched = true
}

// hear is Engine.hearMessage.
func (m *chanModel) hear(n *mNode, msg mMessage) {
	if msg.k == mSingle {
		m.deliver(n, mContent{msg.from, msg.to, msg.session, msg.peerSession})
		return
	}
	p := &n.places[msg.place]
	if p.number != msg.number && m.fault != faultNoNumber {
		m.bad("TAKEN of batch %d, it is %d", msg.number, p.number)
		return
	}
	if m.fault == faultTakenFree {
		*p = mPlace{}
		m.relieve(n)
		return
	}
	m.step(n, p, eventTaken)
}

// unhold is Engine.processHeld.
func (m *chanModel) unhold(n *mNode) {
	for n.held[0].k != 0 {
		if msg := n.held[0]; msg.k != mBatch {
			m.hear(n, msg)
		} else if !m.unpack(n, msg) {
			return
		}
		pop(n.held[:])
	}
}

// unpack is Engine.unpackBatch. A checksum is of what was in the place when the PUT began.
func (m *chanModel) unpack(n *mNode, msg mMessage) bool {
	s := &n.stage[msg.place]
	if msg.number != n.arrived && m.fault != faultNoNumber {
		m.bad("batch %d comes instead of %d", msg.number, n.arrived)
		return true
	}
	if s.state == stageFree {
		return false
	}
	n.arrived++
	m.deliver(n, s.has)
	s.state = stageTaken
	if m.fault == faultEarlyLend {
		return true
	}
	n.touched = true
	push(n.owed[:], mMessage{k: mTaken, place: msg.place, number: msg.number})
	return true
}

// deliver checks what comes.
func (m *chanModel) deliver(n *mNode, c mContent) {
	switch {
	case c.session != n.far || c.peerSession != n.own && c.peerSession != 0:
		m.bad("messages of session %d for %d come in session %d of %d", c.session, c.peerSession, n.far, n.own)
	case c.from != n.got+1:
		m.bad("message %d comes after %d", c.from, n.got)
	}
	n.got = c.to
}

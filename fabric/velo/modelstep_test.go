package velo

// Program counters of a sender.
const (
	sStart   = iota
	sAsk     // WantCredits: enough()?
	sTake    // take: sent.Add
	sAcked   // takeSlow: acked.Load
	sUntake  // untake: sent.Add(-1)
	sSettleW // settle: want.Load
	sSettleF // settle: free
	sSettleC // settle: want.CompareAndSwap
	sTail    // Reserve: tail.Load, head.Load
	sFlow    // room: f.starved.Store
	sBox     // room: m.starved.Store
	sAgain   // room: head.Load
	sClaim   // Reserve: tail.CompareAndSwap
	sCommit  // Commit
	sWant    // await: want.Load
	sBegin   // await: want.CompareAndSwap(0, w)
	sOK      // await: ok()
	sTell    // await: want.CompareAndSwap(w, told)
	sEnd     // awaitCredit: endEpisode() after ok for a slot
	sSleep   // until OnCredit
	sDone
)

// Program counters of the reader.
const (
	rRead    = iota
	rHead    // head.Store
	rAcked   // Return: acked.Store
	rSettleW // settle: want.Load
	rSettleF // settle: free
	rSettleC // settle: want.CompareAndSwap
	rStarved // m.starved.Load, feed's condition
	rFeed    // m.starved.CompareAndSwap
	rFlow    // f.starved.CompareAndSwap
	rResume  // end: want.Swap
)

func (m *model) half() int8 { return (m.limit + 1) / 2 }

func (m *model) free(s *mState, f int8) int8 { return max(0, m.limit-(s.sent[f]-s.acked[f])) }

// settled is the condition of settle to end an episode.
func settled(w mWant, free int8) bool { return w != (mWant{}) && !w.slot && free >= w.credits }

// stepSender runs one step of a sender; false: it sleeps or is done.
func (m *model) stepSender(s *mState, i int) bool {
	p := &s.senders[i]
	f := source(i)
	switch p.pc {
	case sStart:
		if p.left == 0 {
			p.pc = sDone
			return true
		}
		p.seen, p.slotWait, p.asking = s.gen[f], false, false
		p.pc, p.then = sTake, sTail
		if m.asks && i == 1 {
			p.pc, p.asking = sAsk, true
		}
	case sAsk:
		p.pc = sWant
		if m.free(s, f) >= m.limit {
			p.pc, p.then, p.asking = sTake, sTail, false
		}
	case sTake: // then: where to go with a credit; without, await or back to it
		s.sent[f]++
		p.s = s.sent[f]
		p.pc = sAcked
	case sAcked:
		p.a = s.acked[f]
		p.pc = sUntake
		if p.s-p.a <= m.limit {
			p.pc = p.then
		}
	case sUntake:
		s.sent[f]--
		p.pc = sSettleW
	case sSettleW:
		p.sw = s.want[f]
		p.pc = sSettleF
	case sSettleF:
		p.a = m.free(s, f)
		p.pc = sSettleC
	case sSettleC:
		if settled(p.sw, p.a) {
			if s.want[f] != p.sw {
				p.pc = sSettleW
				break
			}
			if p.sw.told {
				s.gen[f]++
			}
			s.want[f] = mWant{}
		}
		// After a failed take: in await's ok, or on the way to await.
		p.pc = sWant
		switch p.ok {
		case 1: // ok of credit()
			p.ok, p.pc = 0, sTell
		case 2: // the credit that reserve() had to give back
			p.ok, p.pc = 0, sSleep
		}
	case sTail:
		p.t = s.tail
		p.pc = sClaim
		if s.tail-s.head >= m.slots {
			p.pc = sFlow
		}
	case sFlow:
		s.starved[f] = true
		p.pc = sBox
	case sBox:
		s.mStarved = true
		p.pc = sAgain
	case sAgain:
		p.pc = sClaim
		if p.t-s.head >= m.slots {
			if p.slotWait {
				p.pc = sTell
			} else {
				p.slotWait, p.pc = true, sWant
			}
		}
	case sClaim:
		p.pc = sTail
		if s.tail == p.t {
			s.tail++
			p.pc = sCommit
			if p.slotWait {
				p.pc = sEnd
			}
		}
	case sEnd:
		if s.want[f].told {
			s.gen[f]++
		}
		s.want[f] = mWant{}
		p.pc = sCommit
	case sCommit:
		s.full[p.t%m.slots], s.flow[p.t%m.slots] = true, f
		p.left--
		p.pc = sStart
	case sWant:
		p.w = s.want[f]
		p.pc = sOK
		if p.w == (mWant{}) {
			p.pc = sBegin
		}
	case sBegin:
		p.pc = sWant
		if s.want[f] == (mWant{}) {
			if m.numbered {
				s.episodes[f]++
			}
			need := m.half()
			if p.asking {
				need = m.limit
			}
			p.w = mWant{credits: need, number: s.episodes[f], slot: p.slotWait}
			s.want[f] = p.w
			p.pc = sOK
		}
	case sOK:
		switch {
		case p.slotWait:
			p.pc = sTail
		case p.asking:
			p.pc = sTell
			if m.free(s, f) >= m.limit {
				p.pc, p.then, p.asking = sTake, sTail, false
			}
		default:
			p.ok, p.pc, p.then = 1, sTake, sTail
		}
	case sTell:
		p.pc = sWant
		if s.want[f] == p.w {
			told := p.w
			told.told = true
			told.slot = told.slot || p.slotWait
			if p.asking {
				told.credits = max(told.credits, m.limit)
			}
			s.want[f] = told
			p.pc = sSleep
			if p.slotWait {
				p.ok, p.pc = 2, sUntake
			}
		}
	case sSleep:
		if s.gen[f] == p.seen {
			return false
		}
		p.pc = sStart
	case sDone:
		return false
	}
	if p.pc == sTail { // a credit: ok of credit() is over
		p.ok = 0
	}
	p.forget()
	return true
}

// forget clears what is not needed any more, so that equal states are equal.
func (p *mSender) forget() {
	if p.pc < sSettleF || p.pc > sSettleC {
		p.sw = mWant{}
	}
	switch p.pc {
	case sStart, sDone:
		*p = mSender{pc: p.pc, left: p.left}
	case sSleep:
		*p = mSender{pc: p.pc, left: p.left, seen: p.seen}
	}
}

// stepReader runs one step of the reader; false: there is nothing to read.
func (m *model) stepReader(s *mState) bool {
	r := &s.reader
	switch r.pc {
	case rRead:
		at := s.pos % m.slots
		if !s.full[at] {
			return false
		}
		s.full[at] = false // the phase bit makes it old
		r.f = s.flow[at]
		s.pos++
		s.consumed[r.f]++
		r.pc = rHead
	case rHead:
		s.head = s.pos
		r.pc = rAcked
	case rAcked:
		s.acked[r.f] = s.consumed[r.f]
		r.pc = rSettleW
	case rSettleW:
		r.w = s.want[r.f]
		r.pc = rSettleF
	case rSettleF:
		r.free = m.free(s, r.f)
		r.pc = rStarved
		if settled(r.w, r.free) {
			r.pc = rSettleC
		}
	case rSettleC:
		r.pc = rSettleW
		if s.want[r.f] == r.w {
			if r.w.told {
				s.gen[r.f]++
			}
			s.want[r.f] = mWant{}
			r.pc = rStarved
		}
	case rStarved:
		r.pc = rRead
		if s.mStarved && s.tail-s.pos <= m.slots/2 {
			r.pc = rFeed
		}
	case rFeed:
		s.mStarved = false
		r.i, r.pc = 0, rFlow
	case rFlow:
		r.pc = rRead
		if r.i < 2 {
			if s.starved[r.i] {
				s.starved[r.i] = false
				r.pc = rResume
			} else {
				r.i, r.pc = r.i+1, rFlow
			}
		}
	case rResume:
		if s.want[r.i].told {
			s.gen[r.i]++
		}
		s.want[r.i] = mWant{}
		r.i, r.pc = r.i+1, rFlow
	}
	if r.pc == rRead {
		*r = mReader{}
	}
	return true
}

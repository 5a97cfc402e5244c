package directsockets

// watch is a step of the watcher.
func (m *model) watch(w world) []world {
	t := &w.th[thWatcher]
	if next, ok := m.common(&w, thWatcher); ok {
		return next
	}
	const idle, ring, tell, off, ask = 0, 1, 2, 3, 4
	switch t.op {
	case idle:
		if !w.watching || !w.rung() {
			return nil
		}
		w.watching = false
		t.op = ring
		if m.fault == watchFirst {
			w.watchOn = false
		}
	case ring:
		w.armed = [2]bool{}
		t.op = tell
	case tell:
		w.bell = false
		t.op = off
		if w.sleeping[mTX] {
			t.pc, t.back, t.half = pcWakeOn, pcTop, mTX
		}
	case off:
		if m.fault != watchFirst {
			w.watchOn = false
		}
		t.op = ask
		t.pc, t.back, t.half, t.work = pcAsk, pcTop, mRX, wantLook
	case ask:
		t.op = idle
		t.half = 0
	}
	return []world{w}
}

// peerStep is a step of the peer's: it changes something, and rings if it has to.
func (m *model) peerStep(w world) (next []world) {
	t := &w.th[thPeer]
	if t.op == 0 {
		v := w // it may ring without a reason, once
		v.th[thPeer].op = 1
		v.ring()
		next = append(next, v)
	}
	if t.op < 2 {
		switch m.peer {
		case evData:
			w.data = true
		case evRoom:
			w.room = true
		case evGone:
			w.gone = true
		case evFallBack:
			w.fallenBack = true
		}
		t.op = 2
		return append(next, w)
	}
	switch {
	case m.peer == evGone:
		w.tellPollers()
	case m.peer == evData && w.armed[mRX], m.peer == evRoom && w.armed[mTX],
		m.peer == evFallBack && (w.armed[mRX] || w.armed[mTX]):
		w.ring()
	}
	*t = strand{pc: pcDone}
	return []world{w}
}

// act is a step of an operation.
func (m *model) act(w world, i int, o op) []world {
	t := &w.th[i]
	if next, ok := m.common(&w, i); ok {
		return next
	}
	switch t.pc {
	case pcLock: // lock.takeSlow, under its mu
		if w.lockMu[t.half] != 0 {
			return nil
		}
		w.lockMu[t.half] = uint8(i) + 1
		w.want[t.half] |= wantLock
		t.pc = pcLockTry
		return []world{w}
	case pcLockTry:
		for j := range w.th {
			w.flush(j)
		}
		if w.lockMu[t.half] = 0; w.try(i, int(t.half)) {
			w.want[t.half] &^= wantLock
			t.pc = pcGo
		} else {
			w.waiting[t.half] = true
			t.pc = pcLockWait
		}
		return []world{w}
	case pcLockWait:
		if !w.signalled[t.half] || w.lockMu[t.half] != 0 {
			return nil
		}
		w.lockMu[t.half] = uint8(i) + 1
		w.signalled[t.half], w.waiting[t.half] = false, false
		t.pc = pcLockTry
		return []world{w}
	}
	t.pc = pcGo
	switch t.op++; o {
	case opCloseRead, opExpireRX:
		return m.setFlag(w, i, mRX, o)
	case opCloseWrite, opExpireTX:
		return m.setFlag(w, i, mTX, o)
	case opDemote:
		switch t.op {
		case 1:
			t.pc, t.back, t.half, t.work = pcAsk, pcGo, mRX, wantFallBack
		case 2:
			t.pc, t.back, t.half, t.work = pcAsk, pcGo, mTX, wantFallBack
		default:
			*t = strand{pc: pcDone, freed: t.freed}
			return []world{w}
		}
		return m.act(w, i, o)
	case opClose:
		return m.close(w, i)
	}
	return []world{w}
}

// setFlag is a step of CloseRead, CloseWrite, and of a deadline's timer.
func (m *model) setFlag(w world, i, h int, o op) []world {
	t := &w.th[i]
	flag := uint8(flagExpired)
	if o == opCloseRead || o == opCloseWrite {
		flag = flagShut
	}
	first, second := 1, 2
	if m.fault == wakeFirst {
		first, second = 2, 1
	}
	switch int(t.op) {
	case first:
		if w.mu != 0 && w.mu != uint8(i)+1 {
			t.op--
			return nil
		}
		if w.flags[h] |= flag; m.fault != wakeFirst {
			w.mu = uint8(i) + 1
		}
	case second:
		t.pc, t.back, t.half = pcWakeOn, pcGo, uint8(h)
		return m.act(w, i, o)
	case 3:
		switch o {
		case opCloseRead:
			w.shadowEnd = true
		case opCloseWrite:
			t.pc, t.back, t.half, t.work = pcAsk, pcGo, mTX, wantShutdown
			return m.act(w, i, o)
		}
	default:
		*t = strand{pc: pcDone, freed: t.freed}
	}
	return []world{w}
}

// close is a step of Close.
func (m *model) close(w world, i int) []world {
	t := &w.th[i]
	switch t.op {
	case 1:
		if w.mu != 0 {
			return nil
		}
		w.flags[mRX] |= flagClosed
	case 2:
		w.flags[mTX] |= flagClosed
	case 3, 5: // seizeHalf
		if t.half = (t.op - 3) / 2; w.try(i, int(t.half)) {
			t.op++
		} else {
			t.pc, t.back = pcWakeOn, pcGo
		}
	case 4, 6:
		t.pc = pcLock
	case 7, 8: // free
		t.half = t.op - 7
		t.pc, t.back = pcFree, pcGo
		return m.act(w, i, opClose)
	default:
		*t = strand{pc: pcDone, freed: t.freed}
	}
	return []world{w}
}

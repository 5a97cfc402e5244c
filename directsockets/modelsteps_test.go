package directsockets

// Where a thread is. The names say what the next step does.
const (
	pcTop  uint8 = iota // a call looks whether it ends
	pcWork              // does what others have left
	pcTake              // Recv, Send, Taken
	pcShut              // awaitRX looks at flagShut
	pcSpin              // finds something, is interrupted, or gives up
	pcClearWake
	pcWanted
	pcOpen
	pcMark    // half.bell.sleeping
	pcEnter   // the poller is reset
	pcRung    // shouldWake: woken, or the doorbell is due to be read
	pcDisarm  // End.Awake
	pcHush    // End.Awake, second half
	pcTell    // the other direction's sleeper
	pcWakeOn  // wakeHalf: half.woken
	pcWakeOff // wakeHalf: the deadlines
	pcArm
	pcReady
	pcInter
	pcFallenBack
	pcBlock
	pcRise // the sleep is over
	pcHeed
	pcTransit
	pcWatch
	pcWatchArm
	pcShadow
	pcAsk
	pcAskTry
	pcFree
	pcLeave
	pcWake
	pcGo // an operation's next step
	pcLock
	pcLockTry
	pcLockWait
	pcDone
)

// loadSignals is half.loadSignals, a load at a time; done: all of them are there.
func (m *model) loadSignals(w *world, t *strand, h uint8) (done bool) {
	if m.coarse() {
		t.s = packed{flags: w.flags[h], want: w.want[h], woken: w.woken[h]}
		return true
	}
	switch t.op++; t.op {
	case 1:
		t.s.flags = w.flags[h]
	case 2:
		t.s.want = w.want[h]
	default:
		t.s.woken = w.woken[h]
		t.op = 0
		return true
	}
	return false
}

// end has the holder of h give the lock back and return.
func (t *strand) end() { t.pc, t.back, t.s = pcFree, pcDone, packed{} }

// hold is a step of a holder of a lock.
func (m *model) hold(w world, i int, kind holder) []world {
	t := &w.th[i]
	h := t.half
	until := m.untilOf(kind)
	one := func() []world { return []world{w} }
	if next, ok := m.common(&w, i); ok {
		return next
	}
	switch t.pc {
	case pcTop:
		if kind == finishes && m.fault != finishBlind {
			t.pc = pcWork
			return m.step(w, i)
		}
		f := uint32(w.flags[h])
		t.pc = pcWork
		switch {
		case kind == finishes && f&flagsGone != 0, kind != finishes && f&flagsStop != 0,
			kind == writes && f&flagShut != 0:
			t.end()
		case kind == finishes:
			return m.finishTop(&w, t, f)
		}
		return one()
	case pcWork:
		if t.pc = pcTake; kind == readsBoth {
			t.pc = pcTransit
		}
		w.want[h] &^= wantWork
		if kind == finishes {
			return m.finishTop(&w, t, uint32(w.flags[h]))
		}
		return one()
	case pcTake:
		switch {
		case h == mRX && (w.data || w.gone), h == mTX && (w.room || w.gone):
			t.end()
		case h == mTX && w.fallenBack:
			w.fallenBackSeen = true
			t.end()
		case h == mRX:
			t.pc = pcShut
		default:
			t.pc = pcSpin
		}
		return one()
	case pcShut:
		if t.pc = pcSpin; w.flags[h]&flagShut != 0 {
			t.end()
		}
		return one()
	case pcSpin: // it looks once, or does not: more looks lead nowhere else
		v := w
		u := &v.th[i]
		u.op, u.s, u.pc = 0, packed{}, pcClearWake
		next := []world{v}
		if m.coarse() {
			return next
		}
		if !m.loadSignals(&w, t, h) {
			return append(next, w)
		}
		if t.s.signals().interrupted(until) && t.s.signals().wanted(until) {
			t.pc, t.s = pcTop, packed{}
			next = append(next, w)
		}
		return next
	case pcClearWake:
		return m.clearWake(&w, t)
	case pcWanted:
		if !m.loadSignals(&w, t, h) {
			return one()
		}
		switch wanted := t.s.signals().wanted(until); {
		case wanted:
			t.pc = pcTop
		default:
			t.pc = pcOpen
		}
		t.s = packed{}
		return one()
	case pcTransit:
		switch {
		case w.data || w.gone:
			t.end()
		case w.watchOn:
			t.pc = pcShadow
		default:
			w.watchOn = true
			t.pc = pcWatch
		}
		return one()
	case pcWatch:
		w.armed[mRX] = true
		t.pc = pcWatchArm
		return one()
	case pcWatchArm:
		if w.data || w.gone {
			w.armed[mRX], w.watchOn = false, false
			t.pc = pcTransit
			return one()
		}
		w.watching = true
		t.pc = pcShadow
		return one()
	case pcShadow:
		switch {
		case w.woken[h]:
			t.pc = pcClearWake
		case w.shadowEnd:
			t.end()
		case !w.shadowPast[h]:
			return nil
		default:
			t.pc = pcTop
		}
		return one()
	}
	return m.sleep(w, i, until)
}

// finishTop is what finishSome looks at before it tries again.
func (m *model) finishTop(w *world, t *strand, f uint32) []world {
	switch {
	case f&flagsGone != 0:
		t.end()
	case w.want[t.half]&wantLock != 0, f&flagExpired != 0:
		// It pauses with the lock free. That it comes back adds nothing that matters here.
		t.end()
	default:
		t.pc = pcTake
	}
	return []world{*w}
}

// clearWake is Conn.clearWake, under Conn.mu.
func (m *model) clearWake(w *world, t *strand) []world {
	h := t.half
	shadow := m.reader == readsBoth && h == mRX
	next := pcWanted
	switch {
	case shadow && m.fault == clearWakeOn:
		next = pcShadow
	case shadow:
		next = pcTop
	}
	if w.woken[h] {
		if w.mu != 0 {
			return nil
		}
		w.woken[h], w.shadowPast[h], w.filePast[h] = false, false, false
	}
	t.pc = next
	return []world{*w}
}

// sleep is a step of Conn.sleepOnBell, from openBell on.
func (m *model) sleep(w world, i int, until uint32) []world {
	t := &w.th[i]
	h := t.half
	one := func() []world { return []world{w} }
	switch t.pc {
	case pcOpen:
		if !w.open[h] {
			if w.mu != 0 {
				return nil
			}
			w.open[h], w.edge[h] = true, w.edge[h] || w.rung()
		}
		t.pc = pcMark
	case pcMark:
		w.sleeping[h], t.awake = true, false
		t.pc = pcEnter
	case pcEnter:
		if w.filePast[h] {
			t.pc = pcRise
			return one()
		}
		w.edge[h] = false
		t.pc = pcRung
	case pcRung:
		awake := t.awake
		t.awake, t.pc = true, pcArm
		switch {
		case awake && h == mRX && (w.data || w.gone):
			t.pc = pcRise // the doorbell is left as it is
			return one()
		case awake && h == mRX && !w.sleeping[mTX]: // it reads the doorbell, if it is due
			v := w
			v.th[i].pc, v.th[i].back = pcDisarm, pcArm
			return []world{v, w}
		case awake || w.gone:
			t.pc, t.back = pcDisarm, pcArm
		case w.bell: // it is read when it was left unread for long
			v := w
			v.th[i].pc, v.th[i].back = pcDisarm, pcArm
			return []world{v, w}
		}
	case pcArm:
		w.armed[h] = true
		t.pc = pcReady
	case pcReady:
		ready := w.gone || h == mRX && w.data || h == mTX && (w.room || w.fallenBack)
		t.pc = pcInter
		if ready {
			w.armed[h] = false
			t.pc = pcRise
		}
	case pcInter:
		if !m.loadSignals(&w, t, h) {
			return one()
		}
		t.pc = pcFallenBack
		if t.s.signals().interrupted(until) {
			t.pc = pcRise
		}
		t.s = packed{}
	case pcFallenBack:
		t.pc = pcBlock
		if m.fault != fallBackUnseen && !w.fallenBackSeen && w.fallenBack {
			t.pc = pcRise
		}
	case pcBlock:
		switch {
		case w.filePast[h]:
			t.pc = pcRise
		case w.edge[h]:
			w.edge[h] = false
			t.pc = pcRung
		default:
			return nil
		}
	case pcRise:
		w.sleeping[h] = false
		t.pc = pcHeed
		if m.fault == tellBack && t.awake {
			t.pc, t.back = pcDisarm, pcHeed
		}
		w.armed[h] = false
		t.awake = false
	case pcHeed:
		if t.pc, t.back = pcTop, 0; h == mTX {
			return m.step(w, i)
		}
		if h == mRX && w.fallenBack && !w.fallenBackSeen {
			w.fallenBackSeen = true
			t.pc, t.back, t.half, t.work = pcAsk, pcTop, mTX, wantReturn
		}
	}
	return one()
}

// common is a step of what several threads do. false: it is none.
func (m *model) common(w *world, i int) (next []world, ok bool) {
	t := &w.th[i]
	h := int(t.half)
	one := func() ([]world, bool) { return []world{*w}, true }
	switch t.pc {
	case pcDisarm: // End.Awake
		w.armed = [2]bool{}
		t.pc = pcHush
	case pcHush:
		w.bell = false
		t.pc = pcTell
	case pcTell:
		other := 1 - h
		tell := w.sleeping[other]
		if !tell && other == mRX {
			tell, w.watchOn = w.watchOn, false
		}
		t.pc = t.back
		if tell && m.fault != tellNobody {
			t.pc, t.half = pcWakeOn, uint8(other)
			t.op = 1 // it comes back to its own direction
		}
	case pcWakeOn:
		if w.mu != 0 && w.mu != uint8(i)+1 {
			return nil, true
		}
		w.mu = uint8(i) + 1
		w.woken[h] = true
		if t.pc = pcWakeOff; m.coarse() {
			return m.common(w, i)
		}
	case pcWakeOff:
		w.shadowPast[h] = true
		w.filePast[h] = w.filePast[h] || w.open[h] // later: openBell makes a file without one
		w.mu = 0
		if t.pc = t.back; t.op == 1 && i < thWatcher {
			t.half = uint8(i)
			t.op = 0
		}
	case pcAsk:
		w.want[h] |= t.work
		t.pc = pcAskTry
	case pcAskTry:
		if m.fault != askPlain {
			for j := range w.th { // shm.Membarrier
				w.flush(j)
			}
		}
		switch {
		case w.try(i, h):
			w.want[h] &^= wantWork
			t.pc = pcFree
		case m.fault == shutUnwoken && t.work == wantShutdown:
			t.pc = t.back
		default:
			t.pc = pcWakeOn
		}
		t.work = 0
		if t.pc == pcWakeOn && i < thWatcher {
			t.op = 1
		}
	case pcFree:
		w.flush(i)
		t.freed = uint8(h) + 1
		t.pc = pcLeave
	case pcLeave:
		t.pc = pcWake
		if w.want[h]&wantWork != 0 {
			if w.try(i, h) {
				w.want[h] &^= wantWork
				t.pc = pcFree
			}
		}
	case pcWake:
		if w.want[h]&wantLock != 0 {
			if w.lockMu[h] != 0 {
				return nil, true
			}
			w.signalled[h] = w.signalled[h] || w.waiting[h]
		}
		t.pc = t.back
		if i < thWatcher {
			t.half = uint8(i)
		}
		if t.pc == pcDone {
			*t = strand{pc: pcDone, half: t.half, freed: t.freed}
		}
	default:
		return nil, false
	}
	return one()
}

package udp

// locked is for a thread that has the lock.
func (m *inModel) locked(step func(func(*mWorld, *mThread) bool), w *mWorld, t *mThread, giveUp func()) {
	switch t.pc {
	case mPick:
		step(func(v *mWorld, t *mThread) bool { m.pick(v, t); return true })
		if (w.moved || w.dead) && w.phase < cDraining { // it is time to ask who the sender is
			step(func(v *mWorld, t *mThread) bool {
				if t.how = int8(cClose); v.moved {
					t.how = int8(cMoved)
				}
				t.call(mShut, mPick)
				return true
			})
		}
	case mBefore:
		step(func(v *mWorld, t *mThread) bool { v.read, t.pc = v.published, mAsk; return true })
	case mAsk:
		step(func(v *mWorld, t *mThread) bool { m.ask(v, t); return true })
	case mTook:
		step(func(v *mWorld, t *mThread) bool {
			v.lock, t.pc = 0, mReturns
			if t.slept {
				v.uncounted--
				t.slept = false
			}
			m.deliver(v, t, t.n)
			return true
		})
	case mOverdue:
		giveUp()
		step(func(v *mWorld, t *mThread) bool {
			if v.lock, t.pc = 0, mReturns; v.due() {
				t.pc = mLock
			}
			return true
		})
	case mSleeps:
		step(func(v *mWorld, t *mThread) bool {
			v.sleepers++
			if t.pc = mArmed; !v.noBells && v.phase != cEnded && v.waiting() > 1 {
				t.call(mEndBells, mArmed)
			}
			return true
		})
	case mArmed, mRestArm:
		step(func(v *mWorld, t *mThread) bool {
			next := mEarly
			if t.pc == mRestArm {
				next = mRestEarly
			}
			if t.how, t.bells = mBell, false; v.noBells {
				t.how = mAll
			}
			t.call(mArm, next)
			return true
		})
	case mEarly:
		giveUp()
		step(func(v *mWorld, t *mThread) bool {
			switch {
			case v.early() && v.sleepers > 1 && m.fault != mTakesBell:
				v.sleepers--
				if v.lock, t.pc, t.naps = 0, mNaps, false; t.nowait && v.nQueue == 0 {
					t.pc, t.n = mReturns, 0
				}
			case v.early():
				v.sleepers--
				t.pc, t.mode = mBefore, mInstead
			case v.due():
				v.sleepers--
				v.lock, t.pc = 0, mLock
			default:
				v.uncounted++
				v.lock, t.pc = 0, mWaits
			}
			return true
		})
	case mRestEarly:
		giveUp()
		step(func(v *mWorld, t *mThread) bool {
			t.how = mRests
			if v.early() && v.nQueue > 0 {
				t.how = mLooks
			} else if v.early() {
				t.how = mNapping
			}
			if v.lock, t.pc = 0, mLast; t.kind != mPolls {
				t.pc = mLastSet
			}
			return true
		})
	default:
		m.within(step, w, t)
	}
}

// pick is the beginning of a look for the next datagram.
func (m *inModel) pick(w *mWorld, t *mThread) {
	if w.shown == mShownM && !w.due() {
		w.shown = 0
	}
	switch {
	case w.shown == mShownK:
		t.pc, t.mode = mBefore, mAgain
	case w.due() || m.fault == mNoAfter && w.early():
		if t.n = w.ring[w.place].n; w.late >= 0 && w.place >= w.late {
			m.bad("datagram %d is of a sender that had lost its address", t.n)
		}
		if w.shown = mShownM; !t.peek {
			w.ring[w.place] = mRecord{}
			w.place++
			w.consumed, w.shown = max(w.consumed, w.place), 0
		}
		t.pc = mTook
	default:
		m.empty(w)
		switch {
		case w.phase == cMemory && t.nowait:
			t.pc, t.mode = mBefore, mNow
		case w.phase == cMemory && !t.spun:
			w.lock, t.pc = 0, mSpins
		default:
			t.pc = mSleeps
		}
	}
}

// ask asks the kernel for a datagram.
func (m *inModel) ask(w *mWorld, t *mThread) {
	if w.nQueue > 0 {
		if t.n = w.queue[0]; !t.peek {
			w.pop()
		}
		m.note(w, t)
		return
	}
	m.wasDry(w, w.read)
	switch t.mode {
	case mAgain:
		w.shown, t.pc = 0, mPick
	case mNow:
		t.pc = mOverdue
	case mSpin:
		w.lock, t.pc, t.spun = 0, mLock, true
	case mInstead:
		if w.lock, t.pc, t.naps = 0, mNaps, false; t.nowait {
			t.pc = mReturns
		}
	}
}

// within is a step of what several callers do.
func (m *inModel) within(step func(func(*mWorld, *mThread) bool), w *mWorld, t *mThread) {
	switch t.pc {
	case mArm:
		step(func(v *mWorld, t *mThread) bool {
			if t.bells && v.phase == cArmed && v.armed == mBell {
				m.on(v, cRing)
			}
			if v.phase != cMemory && !(t.bells && v.phase == cRung && v.armed == mBell) {
				t.back()
				return true
			}
			v.armed, v.consumed = t.how, max(v.consumed, v.place)
			t.pc = mBusy
			return true
		})
	case mBusy:
		if !w.busy || m.fault == mNoWait {
			step(func(v *mWorld, t *mThread) bool { t.pc = mLook; return true })
		} else if w.dead || w.slow > 0 {
			step(func(v *mWorld, t *mThread) bool {
				if !v.dead {
					v.slow--
				}
				t.how = int8(cClose)
				t.call(mShut, mLook)
				return true
			})
		}
	case mLook:
		step(func(v *mWorld, t *mThread) bool {
			if v.phase == cMemory {
				m.on(v, cArm)
			}
			m.empty(v)
			t.back()
			return true
		})
	case mEndBells:
		step(func(v *mWorld, t *mThread) bool {
			v.after = v.after && v.closed
			t.how, t.bells, t.pc = mAll, !v.noBells, mNoBells
			t.call(mArm, mNoBells)
			return true
		})
	case mNoBells:
		step(func(v *mWorld, t *mThread) bool { v.noBells = true; t.back(); return true })
	case mShut:
		step(func(v *mWorld, t *mThread) bool {
			if v.phase >= cDraining {
				t.back()
				return true
			}
			m.on(v, cEvent(t.how))
			v.armed, v.consumed, t.pc = mAll, max(v.consumed, v.place), mShutLook
			return true
		})
	case mShutLook:
		step(func(v *mWorld, t *mThread) bool { v.closed, t.pc = true, mShutFinal; return true })
	case mShutFinal:
		step(func(v *mWorld, t *mThread) bool {
			if t.how == int8(cMoved) {
				v.late = v.put
			}
			v.consumed, v.final = v.put, true
			if m.fault != mNoStop {
				v.stop = v.put
			}
			m.empty(v)
			t.back()
			return true
		})
	case mHand:
		step(func(v *mWorld, t *mThread) bool {
			if m.fault == mDropsRing && v.phase != cEnded {
				m.on(v, cDrop)
				v.closed, v.final, v.consumed = true, true, v.put
				t.pc = mHanded
				return true
			}
			t.how = int8(cClose)
			t.call(mShut, mHanded)
			return true
		})
	case mHanded:
		step(func(v *mWorld, t *mThread) bool { v.lock, t.pc = 0, mIdle; return true })
	}
}

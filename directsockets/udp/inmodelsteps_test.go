package udp

// How ds_dg_await_kernel leaves a thread that is about to sleep.
const (
	mRests int8 = iota
	mLooks
	mNapping
)

func (t *mThread) call(pc, back int8) {
	t.ret[t.depth] = back
	t.depth++
	t.pc = pc
}

func (t *mThread) back() {
	t.depth--
	t.pc = t.ret[t.depth]
	t.ret[t.depth] = 0
}

// begin begins a receive.
func (t *mThread) begin(nowait bool) {
	t.pc, t.nowait, t.spun, t.brought, t.n = mLock, nowait, false, false, 0
}

// sender is a step of the sender (10.3).
func (m *inModel) sender(try func(func(*mWorld) bool), w *mWorld) {
	switch w.at {
	case mProgram:
		if w.sends == 0 || w.dead {
			return
		}
		choose := func(dry bool) {
			try(func(v *mWorld) bool {
				v.sends--
				v.next++
				if dry && !v.shared {
					if v.lost == mUnknown {
						v.base = v.byKernel - v.taken
					}
					v.lost = v.byKernel - v.taken
				}
				dry = dry || v.settled() || m.fault == mUnsettled
				v.at = mKernel
				if may := v.armed == 0 || v.says() && v.armed != mAll; !v.closed && may && (dry || v.lost != mUnknown && v.unsettled()) {
					v.at, v.busy = mBegun, true
				}
				return true
			})
		}
		choose(false)
		if w.quiet() && w.dry == w.byKernel && !w.settled() {
			choose(true)
		}
	case mBegun:
		look := func(rings bool) {
			try(func(v *mWorld) bool {
				if v.closed || v.armed != 0 && (!v.says() || v.armed != mBell || rings) {
					v.at, v.busy = mKernel, false
				} else {
					v.at = mPublish
				}
				return true
			})
		}
		under := w.taken+w.lost < w.byKernel && w.dry != w.byKernel
		rings := (!under || w.quiet()) && (w.consumed == w.put || w.taken+w.base >= w.told || w.quiet())
		look(rings)
		if rings && w.quiet() { // it has not been quiet for long enough
			look(!under && (w.consumed == w.put || w.taken+w.base >= w.told))
		}
	case mPublish:
		try(func(v *mWorld) bool {
			r := mRecord{n: v.next}
			if v.says() && v.told != v.byKernel && m.fault != mNoAfter {
				r.says, r.after, r.lot = true, v.byKernel, v.base
				v.told = v.byKernel
			}
			v.ring[v.put] = r
			v.put++
			v.at = mPublished
			return true
		})
	case mPublished:
		try(func(v *mWorld) bool { v.at, v.busy = mMissedLook, false; return true })
	case mMissedLook:
		switch {
		case !w.closed || m.fault == mMissed:
			try(func(v *mWorld) bool { v.at = mProgram; return true })
		case w.final || w.gone:
			try(func(v *mWorld) bool {
				if v.at = mProgram; v.consumed < v.put {
					v.at = mKernel
				}
				return true
			})
		}
	case mKernel:
		try(func(v *mWorld) bool {
			if v.moved { // it comes from another address
				v.got |= 1 << v.next
				v.at = mProgram
				return true
			}
			v.transit[v.nTransit] = v.next
			v.nTransit++
			v.at = mSent
			return true
		})
	case mSent: // on one host the datagram is in the queue when the call returns, unless the kernel is late
		if !w.quiet() {
			return
		}
		try(func(v *mWorld) bool { v.byKernel++; v.published = v.byKernel; v.at = mProgram; return true })
	}
}

// took is ds_dg_took.
func (m *inModel) took(w *mWorld, t *mThread) {
	t.pc = mTook
	if w.phase == cEnded {
		return
	}
	w.taken++
	if w.phase == cArmed && w.holds() {
		m.on(w, cRing)
	}
	if w.phase > cRung || w.hard {
		return
	}
	w.queued = true
	if w.waiting() > 0 && m.fault != mWakesAnyway {
		t.call(mEndBells, mTook)
		return
	}
	m.on(w, cWake)
	w.armed = 0
}

// wasDry is ds_dg_found_nothing, after by_kernel was read.
func (m *inModel) wasDry(w *mWorld, read int8) {
	if w.uncounted > 0 || w.phase != cMemory {
		return
	}
	if most := read - w.dLot - w.taken; w.dLost > 0 && w.dLost > most {
		w.dLost = max(most, 0)
	}
	w.dry = read
}

// empty takes a flow out of the list whose ring is empty.
func (m *inModel) empty(w *mWorld) {
	if (w.phase == cRung || w.phase == cDraining) && (!w.holds() || m.fault == mNoLook && w.phase == cRung) {
		m.on(w, cEmpty)
	}
}

// tell has the program receive what poll or epoll has told it of.
func (w *mWorld) tell(t *mThread) { t.begin(true) }

// thread is a step of a thread of the receiver.
func (m *inModel) thread(try func(func(*mWorld) bool), w *mWorld, i int) {
	step := func(f func(v *mWorld, t *mThread) bool) {
		try(func(v *mWorld) bool { return f(v, &v.threads[i]) })
	}
	free := w.lock == 0 || w.lock == int8(1+i)
	t := &w.threads[i]
	jump := func(f func(v *mWorld)) {
		if w.jumps > 0 {
			step(func(v *mWorld, t *mThread) bool {
				v.jumps--
				t.pc = mGone
				if m.fault != mJumpCounted {
					f(v)
				}
				return true
			})
		}
	}
	late := w.nQueue > 0 || !w.early() || w.overdue() && m.fault != mNeverLost // a thread that naps goes on
	giveUp := func() {
		if w.overdue() && m.fault != mNeverLost {
			step(func(v *mWorld, t *mThread) bool { m.giveUp(v); return true })
		}
	}
	switch t.pc {
	case mIdle:
		m.idle(step, w, free)
	case mLock:
		if !free {
			return
		}
		step(func(v *mWorld, t *mThread) bool {
			v.lock = int8(1 + i)
			t.pc = mPick
			if v.sleepers > 0 {
				if t.pc = mYields; !v.noBells && v.phase != cEnded {
					t.call(mEndBells, mYields)
				}
			}
			return true
		})
	case mYields:
		step(func(v *mWorld, t *mThread) bool {
			if t.pc = mPick; v.early() && v.nQueue > 0 {
				v.lock, t.pc, t.naps = 0, mNaps, true
			}
			return true
		})
	case mNaps:
		if t.naps && !(w.sleepers > 0 && w.early() && w.nQueue > 0) || !t.naps && late {
			step(func(v *mWorld, t *mThread) bool { t.pc, t.naps = mLock, false; return true })
		}
		jump(func(*mWorld) {})
	case mSpins:
		if free {
			step(func(v *mWorld, t *mThread) bool {
				if t.pc, t.mode = mBefore, mSpin; v.phase == cMemory {
					v.lock = int8(1 + i)
				} else {
					t.pc, t.spun = mLock, true
				}
				return true
			})
		}
	case mWaits:
		switch {
		case w.nQueue > 0:
			step(func(v *mWorld, t *mThread) bool {
				if t.n = v.queue[0]; !t.peek {
					v.pop()
				}
				t.pc = mWoke
				return true
			})
		case t.nowait:
			step(func(v *mWorld, t *mThread) bool { v.sleepers--; v.uncounted--; t.pc = mReturns; return true })
		default:
			jump(func(v *mWorld) { v.sleepers--; v.uncounted-- })
		}
	case mWoke:
		if m.fault == mNotCounted {
			step(func(v *mWorld, t *mThread) bool { v.sleepers--; t.pc = mCount; return true })
			return
		}
		fallthrough
	case mCount:
		if free {
			step(func(v *mWorld, t *mThread) bool {
				if t.pc == mWoke {
					v.sleepers--
				}
				v.lock, t.slept = int8(1+i), true
				m.note(v, t)
				return true
			})
		}
	case mReturns:
		step(func(v *mWorld, t *mThread) bool {
			if t.brought && v.listed() && v.asleep > 0 && m.fault != mNoKick {
				for k := range v.threads {
					v.threads[k].kicked = v.threads[k].kind == mSets || v.threads[k].kind == mEdges
				}
			}
			t.how, t.mode, t.bells, v.read = 0, 0, false, 0
			if t.brought = false; t.kind == mEdges && t.n != 0 {
				t.begin(true)
			} else {
				t.pc, t.n = mIdle, 0
			}
			return true
		})
	case mReady:
		if free {
			step(func(v *mWorld, t *mThread) bool {
				if t.pc = mSleeper; v.due() {
					v.tell(t)
				}
				return true
			})
		}
	case mSleeper:
		step(func(v *mWorld, t *mThread) bool { v.sleepers++; t.pc = mRest; return true })
	case mRest:
		m.rest(step, w, i, free)
	case mLast:
		switch {
		case t.how == mNapping:
			if late {
				step(func(v *mWorld, t *mThread) bool { t.pc = mRest; return true })
			}
			jump(func(v *mWorld) { v.sleepers-- })
		case free:
			step(func(v *mWorld, t *mThread) bool {
				switch {
				case v.due():
					v.sleepers--
					t.pc = mReady
				case t.how == mRests:
					t.pc = mWaitPoll
				default:
					v.sleepers--
					if t.pc = mReady; v.nQueue > 0 {
						v.tell(t)
					}
				}
				return true
			})
		}
	case mWaitPoll:
		if w.nQueue > 0 {
			step(func(v *mWorld, t *mThread) bool { v.sleepers--; v.tell(t); return true })
		} else {
			jump(func(v *mWorld) { v.sleepers-- })
		}
	case mCollect, mAsleep, mLastSet, mNapsSet, mWaitSet:
		m.set(step, w, t, free, late, giveUp)
		if t.pc == mWaitSet && w.nQueue == 0 {
			jump(func(v *mWorld) { v.asleep-- })
		}
	case mGone:
	default:
		m.locked(step, w, t, giveUp)
	}
}

// idle is for a thread between two calls.
func (m *inModel) idle(step func(func(*mWorld, *mThread) bool), w *mWorld, free bool) {
	step(func(v *mWorld, t *mThread) bool {
		t.peek = false
		switch t.kind {
		case mReceives:
			t.begin(false)
		case mTries:
			if t.left--; t.left < 0 {
				t.left, t.pc = 0, mGone
			} else {
				t.begin(true)
			}
		case mPeeks:
			t.peek = t.shown == 0
			t.begin(!t.peek)
		case mPolls:
			t.pc = mReady
		default:
			t.pc = mCollect
		}
		return true
	})
	if w.hands > 0 && free {
		step(func(v *mWorld, t *mThread) bool {
			v.hands--
			v.hard = true
			v.lock = 1
			if t == &v.threads[1] {
				v.lock = 2
			}
			t.how, t.bells = mAll, !v.noBells
			t.call(mArm, mHand)
			return true
		})
	}
	if w.closes > 0 && free && w.phase != cEnded {
		step(func(v *mWorld, t *mThread) bool {
			v.closes--
			m.on(v, cDrop)
			v.gone = true
			return true
		})
	}
}

// note is for a datagram by the kernel that the thread has.
func (m *inModel) note(w *mWorld, t *mThread) {
	if t.peek {
		w.shown, t.pc = mShownK, mTook
		return
	}
	if w.shown == mShownK {
		w.shown = 0
	}
	t.brought = true
	m.took(w, t)
}

// rest is ds_dg_rest, for a thread that is counted.
func (m *inModel) rest(step func(func(*mWorld, *mThread) bool), w *mWorld, i int, free bool) {
	skips := !w.listed() && (w.noBells || w.phase == cEnded || w.waiting() <= 1)
	if !skips && !free {
		return
	}
	step(func(v *mWorld, t *mThread) bool {
		if skips {
			t.how, t.pc = mRests, mLast
			if t.kind != mPolls {
				t.pc = mLastSet
			}
			return true
		}
		v.lock = int8(1 + i)
		if v.phase == cMemory && (v.published != v.taken || v.place == 0) && v.published != v.dry && v.nQueue == 0 {
			m.wasDry(v, v.published)
		}
		if t.pc = mRestArm; !v.noBells && v.phase != cEnded && v.waiting() > 1 {
			t.call(mEndBells, mRestArm)
		}
		return true
	})
}

// set is for a thread that waits in epoll.
func (m *inModel) set(step func(func(*mWorld, *mThread) bool), w *mWorld, t *mThread, free, late bool, giveUp func()) {
	fresh := t.kind == mSets || w.arrivals() != t.seen
	switch t.pc {
	case mCollect:
		if !free {
			return
		}
		giveUp()
		step(func(v *mWorld, t *mThread) bool {
			t.kicked = false
			if t.pc = mAsleep; v.due() && fresh {
				t.seen = v.arrivals()
				v.tell(t)
			}
			return true
		})
	case mAsleep:
		step(func(v *mWorld, t *mThread) bool {
			v.asleep++
			v.queued = v.queued && v.listed()
			if t.pc = mWaitSet; v.queued {
				t.pc = mRest
			}
			return true
		})
	case mLastSet:
		if !free {
			return
		}
		step(func(v *mWorld, t *mThread) bool {
			switch {
			case v.due() && fresh:
				v.asleep--
				t.pc = mCollect
			case t.how == mNapping:
				v.asleep--
				t.pc = mNapsSet
			default:
				t.pc = mWaitSet
			}
			return true
		})
	case mNapsSet:
		if late {
			step(func(v *mWorld, t *mThread) bool { t.pc = mCollect; return true })
		}
	case mWaitSet:
		if w.nQueue > 0 && (t.kind == mSets || t.edge) {
			step(func(v *mWorld, t *mThread) bool { v.asleep--; t.edge = false; v.tell(t); return true })
		}
		if t.kicked {
			step(func(v *mWorld, t *mThread) bool { v.asleep--; t.pc = mCollect; return true })
		}
	}
}

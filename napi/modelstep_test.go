package napi

const modelBudget = 2

// step appends the states that goroutine p can bring about with its next step.
func (sc *scenario) step(s mstate, p int, out []mstate) []mstate {
	g := &s.procs[p]
	bit := word(1) << g.src
	switch g.pc {
	case pcSend:
		if g.left == 0 {
			g.pc = pcEnd
			return append(out, s)
		}
		g.left--
		g.pc = pcCheck
		for _, src := range sc.targets {
			n := s
			n.procs[p].src = src
			n.pending[src]++
			out = append(out, n)
		}
		return out
	case pcCheck:
		if g.pc = pcSend; s.unmasked[g.src] {
			s.unmasked[g.src] = false // one-shot
			if g.pc = pcMask; sc.moderates(g.src) {
				g.pc = pcCount
			}
		}
	case pcCount:
		s.mod.events = min(s.mod.events+1, sc.frames) // more makes no difference
		g.pc = pcMask
	case pcMask:
		s.unmasked[g.src] = false
		g.pc = pcSched
	case pcSched:
		w, act := s.w.schedule(bit, !sc.threaded)
		if sc.dropMark && s.w&ownedBit != 0 {
			w = s.w
		}
		s.w = w
		sc.act(&s, g, act)
	case pcWake:
		s.wake[g.line] = true
		g.line, g.pc = 0, g.home
	case pcPoke: // SetMode and Close: wakeBoth
		s.wake[0] = true
		g.pc = pcPokeEvent
	case pcPokeEvent:
		s.wake[1] = true
		g.pc = g.home
		sc.act(&s, g, g.then)
		g.then = actNone

	case pcNext:
		// Whether a run is over its limits is left open, but for an interrupt's:
		// that is one poll.
		for _, over := range []bool{false, true} {
			if over != g.irq && (g.irq || over && s.w&irqBit != 0 && g.thread) {
				continue
			}
			n := s
			sc.next(&n, &n.procs[p], over)
			out = append(out, n)
		}
		return out
	case pcDue:
		if s.mod.again {
			s.mod.again = false
			g.pc = pcPoll
			break
		}
		g.forced, s.mod.force = s.mod.force || g.irq, false
		g.pc = pcHold
	case pcHold:
		m := &s.mod
		m.announced = min(m.announced+m.events, sc.frames)
		m.events = 0
		if g.forced || sc.frames > 0 && m.announced >= sc.frames {
			m.held, m.announced, m.armed = false, 0, false
			g.forced = true
		} else if !m.held {
			m.held, m.armed = true, !sc.noTimer
		}
		g.pc = pcHeld
	case pcHeld:
		if g.pc = pcPoll; g.forced {
			s.unmasked[g.src] = false
		} else {
			if g.pc = pcNext; sc.frames > 0 {
				s.unmasked[g.src] = true
			}
		}
		g.forced = false
	case pcPoll:
		switch {
		case g.got < g.budget && s.pending[g.src] > 0:
			s.pending[g.src]--
			g.got++
		case g.got >= g.budget && !g.irq:
			s.mod.again = sc.moderates(g.src)
			g.pc = pcRequeue
		default:
			g.pc = pcEnable
		}
	case pcEnable:
		s.unmasked[g.src] = true
		if g.pc = pcRecheck; sc.noRecheck {
			g.pc = pcNext
		}
	case pcRecheck:
		if g.pc = pcNext; s.pending[g.src] == 0 {
			break
		}
		if g.pc = pcRemask; g.irq {
			g.pc = pcRaise
		}
	case pcRaise:
		if g.pc = pcNext; s.unmasked[g.src] {
			s.unmasked[g.src] = false
			if sc.moderates(g.src) {
				s.mod.events = min(s.mod.events+1, sc.frames)
			}
			g.pc = pcRaised
		}
	case pcRaised:
		s.w, _ = s.w.schedule(bit, !sc.threaded) // owned
		g.pc = pcNext
	case pcRemask:
		if sc.moderates(g.src) {
			s.mod.events = min(s.mod.events+1, sc.frames) // rescheduled
		}
		s.unmasked[g.src] = false
		g.pc = pcRequeue
	case pcRequeue:
		s.w |= bit
		g.pc = pcNext

	case pcBusyMask:
		s.unmasked[g.src] = false
		if g.src++; g.src == modelSources {
			g.src, g.pc = 0, pcBusyLook
		}
	case pcBusyLook:
		switch {
		case s.w&closedBit != 0:
			g.pc = pcNext
		case s.w&busyBit != 0:
			g.pc = pcBusyPoll
		default:
			g.pc = pcBusyEnable
		}
	case pcBusyPoll:
		s.pending[g.src] = 0
		if g.src++; g.src == modelSources {
			g.src, g.pc = 0, pcBusyLook
		}
	case pcBusyEnable:
		s.unmasked[g.src] = true
		g.pc = pcBusyRecheck
	case pcBusyRecheck:
		if s.pending[g.src] > 0 {
			g.pc = pcBusyRemask
		} else {
			g.busyNext()
		}
	case pcBusyRemask:
		s.unmasked[g.src] = false
		g.pc = pcBusyRequeue
	case pcBusyRequeue:
		s.w |= bit
		g.busyNext()

	case pcAttach:
		if s.w&closedBit != 0 {
			g.pc = pcEnd // ErrClosed
			break
		}
		w, act := s.w.threadAttached()
		s.w = w
		sc.act(&s, g, act)
	case pcSleep:
		// The mode is looked at, and then what belongs to it is waited for.
		g.line = lineOf(s.w)
		g.pc = pcWait
	case pcWait:
		if !s.wake[g.line] {
			return out
		}
		s.wake[g.line] = false
		g.line, g.pc = 0, pcLook
	case pcLook:
		g.closed = s.w&closedBit != 0
		switch {
		case s.w&threadBit != 0:
			g.thread, g.pc = true, pcNext
			if g.closed {
				g.home = pcWaitDone
			}
		case g.closed:
			g.pc = pcWaitDone
		default:
			g.pc = pcSleep
		}
	case pcWaitDone:
		if s.done == 0 {
			return out
		}
		g.pc = pcEnd

	case pcOperator:
		if int(g.left) == len(sc.ops) {
			g.pc = pcEnd
			break
		}
		w, act := sc.ops[g.left](s.w)
		closing := w&closedBit != 0
		flip := (s.w^w)&irqBit != 0
		g.left++
		s.w = w
		if closing || flip && !sc.noPoke {
			g.then, g.pc = act, pcPoke
			break
		}
		sc.act(&s, g, act)
	case pcTimer:
		if !s.mod.armed {
			return out
		}
		s.mod.armed = false
		g.pc = pcExpire
	case pcExpire:
		s.mod.force = true
		g.src, g.pc = 0, pcSched
	default:
		return out
	}
	return append(out, s)
}

// next is the head of Context.run.
func (sc *scenario) next(s *mstate, g *proc, over bool) {
	old := s.w
	w, st, i := old.nextAction(g.thread, over, int(s.last))
	s.w = w
	switch st {
	case stepPoll:
		s.last = int8(i)
		g.src, g.got, g.budget = uint8(i), 0, modelBudget
		if g.irq = old&irqBit != 0; g.irq {
			g.budget = 1
		}
		if g.pc = pcPoll; sc.moderates(g.src) {
			g.pc = pcDue
		}
	case stepIdle:
		g.leave()
	case stepHandOver:
		g.leave()
		g.line, g.pc = lineOf(w), pcWake
	case stepBusy:
		g.src, g.pc = 0, pcBusyMask
	case stepClosed:
		s.done++
		g.leave()
	}
}

// leave is the return from Context.run. What only matters within it is reset,
// so that equal situations are equal states.
func (g *proc) leave() {
	g.pc, g.src, g.got, g.budget, g.irq, g.thread = g.home, 0, 0, 0, false, false
}

func (g *proc) busyNext() {
	if g.src++; g.src == modelSources {
		g.src, g.pc = 0, pcNext
	} else {
		g.pc = pcBusyEnable
	}
}

// act is Context.actOn.
func (sc *scenario) act(s *mstate, g *proc, a action) {
	switch a {
	case actNone:
		g.pc = g.home
	case actRun:
		g.pc = pcNext
	case actWake:
		g.line, g.pc = lineOf(s.w), pcWake
	case actDone:
		s.done++
		g.pc = g.home
	}
}

// lineOf is Context.wakerOf.
func lineOf(w word) uint8 {
	if w&irqBit != 0 {
		return 1
	}
	return 0
}

func (sc *scenario) moderates(src uint8) bool { return src == 0 && (sc.frames > 0 || sc.delay) }

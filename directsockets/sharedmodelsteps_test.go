package directsockets

import (
	"strings"
	"testing"

	"exnet/internal/explore"
	"exnet/internal/longtest"
	"exnet/internal/racetest"
)

// sender are the steps of a process that has the lock of the sender's end.
func (m *kModel) sender(try func(func(*kWorld) bool), w *kWorld, i int) {
	step := func(f func(v *kWorld, h *kHolder) bool) {
		try(func(v *kWorld) bool { return f(v, &v.holders[0][i]) })
	}
	switch w.holders[0][i].pc {
	case kLook:
		step(func(v *kWorld, h *kHolder) bool { m.lookTX(v, h); return true })
	case kReady:
		if w.holders[0][i].closing != kStays {
			step(func(v *kWorld, h *kHolder) bool { h.pc, v.lock[0] = kGone, 0; return true })
			return
		}
		step(func(v *kWorld, h *kHolder) bool { h.pc, v.lock[0] = kIdle, 0; return true })
		step(m.send)
		if w.ends > 0 {
			step(func(v *kWorld, h *kHolder) bool { return m.leaveTX(v, h, kDemote) })
			step(func(v *kWorld, h *kHolder) bool { return m.leaveTX(v, h, kShut) })
		}
	case kMove:
		step(func(v *kWorld, h *kHolder) bool {
			what := txEvent(h.ev)
			m.onTX(v, what)
			if h.pc = kLook; what == txShutdown {
				h.pc = kFin
			}
			return true
		})
	case kEnd:
		step(func(v *kWorld, h *kHolder) bool {
			if v.fell {
				m.returns(v, h)
			} else if h.pc = kStand; h.ev == kShut {
				h.pc, h.ev = kMove, int8(txShutdown)
			}
			return true
		})
	case kStand:
		step(func(v *kWorld, h *kHolder) bool {
			v.stands = m.fault != kNoStands
			if h.pc = kMove; h.ev == kPause {
				h.ev = int8(txPause)
			} else {
				h.ev = int8(txDemote)
			}
			return true
		})
	case kFin:
		step(func(v *kWorld, h *kHolder) bool { h.pc, v.fin = kReady, true; return true })
	case kWrote:
		step(func(v *kWorld, h *kHolder) bool { h.pc = kLook; v.back++; return true })
	case kGone:
		step(func(v *kWorld, _ *kHolder) bool { v.counted--; m.die(v, 0, i); return true })
	}
}

// returns is the beginning of the way back to TCP: FALLEN_BACK was found.
func (m *kModel) returns(w *kWorld, h *kHolder) {
	w.returned, w.back = true, w.fellAt
	if m.fault == kSkips && w.back < w.said {
		w.back++
	}
	h.pc, h.ev = kMove, int8(txFallenBack)
}

// lookTX is ds_tx_update.
func (m *kModel) lookTX(w *kWorld, h *kHolder) {
	h.pc = kReady
	pause := w.said - 1
	for pause >= 0 && w.queue[pause].kind != kPause {
		pause--
	}
	if w.tx == txPaused && (w.taken > pause || m.fault == kResumes) && !w.fell {
		w.stands = false
		m.onTX(w, txResume)
	}
	switch {
	case w.tx == txReturning:
		if w.gone(1) && !w.guarded { // the shadow may take nothing before it is killed
			w.guarded = true
			h.pc = kLook
			return
		}
		if w.back < w.over(w.back) {
			if b := w.queue[w.back]; b.kind == kData {
				w.shadow[w.wrote] = b.n
				w.wrote++
				h.pc = kWrote
				return
			}
			w.back++
			h.pc = kLook
			return
		}
		m.onTX(w, txWritten)
		w.guarded = false
	case w.tx > txDirect:
	case w.fell && w.tx == txPaused && w.fellAt <= pause:
		m.onTX(w, txLeave)
	case w.fell && w.tx == txDirect:
		m.returns(w, h)
	case w.fell:
		w.returned = true
		h.pc, h.ev = kMove, int8(txFallenBack)
	case w.gone(1) && w.tx == txDirect:
		m.onTX(w, txGone)
	case w.gone(1):
		m.onTX(w, txLeave)
	case w.off && w.tx == txDirect:
		w.say(kPause, 0)
		h.pc, h.ev = kEnd, kPause
	}
}

// send sends a byte, or PROMOTE.
func (m *kModel) send(w *kWorld, h *kHolder) bool {
	h.pc = kLook
	switch {
	case w.sent == m.bytes || w.fin || w.tx == txOver || w.tx == txReturning || w.said >= kSlots-2:
		return false
	case w.tx == txShadow && !w.off:
		n := w.wrote
		if m.fault == kMiscounts && n > 0 {
			n--
		}
		w.say(kPromote, n)
		h.pc, h.ev = kMove, int8(txPromote)
	case w.tx == txDirect:
		w.sent++
		w.say(kData, w.sent)
	default:
		w.sent++
		w.shadow[w.wrote] = w.sent
		w.wrote++
	}
	return true
}

// leaveTX is the end of the direction in the segment: the program demotes, or shuts down.
func (m *kModel) leaveTX(w *kWorld, h *kHolder, kind int8) bool {
	if w.fin || w.tx == txOver || w.tx == txReturning {
		return false
	}
	w.ends--
	switch {
	case w.tx == txDirect:
		w.say(kind, 0)
		h.pc, h.ev = kEnd, kind
	case kind == kDemote && w.tx == txBack:
		return false
	default:
		if w.tx != txBack {
			m.onTX(w, txLeave)
		}
		if h.pc = kLook; kind == kShut {
			h.pc = kFin
		}
	}
	return true
}

// receiver are the steps of a process that has the lock of the receiver's end.
func (m *kModel) receiver(try func(func(*kWorld) bool), w *kWorld, i int) {
	step := func(f func(v *kWorld, h *kHolder) bool) {
		try(func(v *kWorld) bool { return f(v, &v.holders[1][i]) })
	}
	switch w.holders[1][i].pc {
	case kLook:
		step(func(v *kWorld, h *kHolder) bool { m.lookRX(v, h); return true })
	case kReady:
		step(func(v *kWorld, h *kHolder) bool { h.pc, v.lock[1] = kIdle, 0; return true })
		if !w.raw && !w.ended {
			step(m.read)
		}
		if w.falls > 0 && w.rx >= rxShadow && w.rx <= rxDirect && !w.fell {
			step(func(v *kWorld, h *kHolder) bool {
				if end := v.over(v.taken); end < v.said && v.queue[end].kind != kPause {
					return false
				}
				v.falls--
				v.fell, v.fellAt = true, v.taken
				h.pc, h.ev = kMove, int8(rxFallBack)
				return true
			})
		}
		if !w.raw && (w.rx == rxBack && w.fell || w.rx == rxFallenBack && w.taken == w.said && !w.returned) {
			hand := func(v *kWorld, h *kHolder) bool {
				if v.rx == rxFallenBack {
					m.onRX(v, rxHeld)
				}
				v.raw = true
				return true
			}
			step(hand)                              // by SCM_RIGHTS
			step(func(v *kWorld, h *kHolder) bool { // by exec
				v.lock[1], h.live, h.pc = 0, false, kIdle
				return hand(v, h)
			})
		}
	case kMove:
		step(func(v *kWorld, h *kHolder) bool {
			what := rxEvent(h.ev)
			if what == rxPromote {
				v.carried = v.queue[v.taken-1].n
			}
			m.onRX(v, what)
			h.pc = kLook
			return true
		})
	case kDone:
		step(func(v *kWorld, h *kHolder) bool { v.taken++; h.pc = kLook; return true })
	case kByte, kEOF:
		step(m.readShadow)
	case kTook:
		step(func(v *kWorld, h *kHolder) bool { h.pc = kLook; v.noted++; return true })
	}
}

// lookRX is ds_rx_update.
func (m *kModel) lookRX(w *kWorld, h *kHolder) {
	var next kMessage
	if w.taken < w.said {
		next = w.queue[w.taken]
	}
	on := func(what rxEvent) { m.onRX(w, what); h.pc = kLook }
	h.pc = kReady
	switch w.rx {
	case rxShadow:
		switch {
		case next.kind == kPromote:
			w.taken++
			h.pc, h.ev = kMove, int8(rxPromote)
		case next.kind != 0:
			m.bad("the queue has %d before PROMOTE", next.kind)
		case w.gone(0):
			on(rxGone)
		}
	case rxCatchUp:
		if w.noted > w.carried {
			m.bad("PROMOTE says %d, and %d were read", w.carried, w.noted)
		} else if w.noted < w.carried && w.read >= w.carried {
			m.bad("the receiver waits for byte %d of the shadow, which was read", w.noted+1)
		} else if w.noted == w.carried {
			on(rxReached)
		}
	case rxDirect:
		switch {
		case next.kind == kPause && !w.fell:
			on(rxPause)
			h.pc = kDone
		case next.kind == kPause || next.kind == kDemote:
			on(rxDemote)
			h.pc = kDone
		case next.kind == kShut:
			on(rxShutdown)
			h.pc = kDone
		case next.kind == kPromote:
			m.bad("PROMOTE where it is direct")
		case next.kind == 0 && w.gone(0):
			on(rxGone)
		}
	case rxFallenBack:
		m.decide(w, h)
	case rxReturning:
		switch {
		case w.came >= w.due:
			on(rxHeld)
		case w.eof():
			if m.fault != kForwardTwice {
				w.taken = w.fellAt
			}
			for r := w.came - w.carried; w.queue[w.taken].kind == kPromote || r > 0; w.taken++ {
				if w.queue[w.taken].kind == kData {
					r--
				}
			}
			h.pc, h.ev = kMove, int8(rxEnded)
		}
	case rxRest:
		if next.kind != kData || m.fault == kNoRest {
			on(rxRead)
		}
	}
}

// decide moves a receiver on that has fallen back, if that can be.
func (m *kModel) decide(w *kWorld, h *kHolder) {
	end := w.over(w.taken)
	switch ends := end < w.said && w.queue[end].kind != kShut; {
	case w.returned:
		w.due = w.carried
		if p := w.fellAt; p < w.said && w.queue[p].kind == kPromote {
			w.carried = w.queue[p].n
			w.due = w.carried
		}
		if w.rx == rxFallenBack && w.before == rxShadow && (w.fellAt >= w.said || w.queue[w.fellAt].kind != kPromote) {
			w.carried, w.due = 0, 0
		}
		for i := w.fellAt; w.due > 0 || i < w.over(w.fellAt); i++ {
			if i >= w.over(w.fellAt) {
				break
			}
			if w.queue[i].kind == kData {
				w.due++
			}
		}
		m.onRX(w, rxReturned)
		h.pc = kLook
	case w.stands && ends, w.gone(0) && (w.read < w.came || w.eof()), w.eof():
		m.onRX(w, rxQueue)
		h.pc = kLook
	}
}

// read is a call of the program's.
func (m *kModel) read(w *kWorld, h *kHolder) bool {
	h.pc = kLook
	switch w.rx {
	case rxOver:
		w.ended = true
		if w.got != w.sent {
			m.bad("an end of file in the segment after %d of %d", w.got, w.sent)
		}
	case rxDirect, rxRest:
		if w.taken == w.said || w.queue[w.taken].kind != kData {
			return false
		}
		m.take(w, w.queue[w.taken].n)
		w.taken++
	case rxCatchUp:
		if w.read == w.came || w.noted >= w.carried {
			return false
		}
		m.takeShadow(w)
		h.pc = kTook
	case rxReturning:
		if w.read == w.came {
			return false
		}
		m.takeShadow(w)
		h.pc = kTook
	default:
		switch {
		case w.read < w.came:
			h.pc = kByte
		case w.eof():
			h.pc = kEOF
		default:
			return false
		}
	}
	return true
}

// readShadow is for a receiver that has seen that the shadow has a byte, or has ended: before it
// takes that, it looks whether the queue comes first.
func (m *kModel) readShadow(w *kWorld, h *kHolder) bool {
	at := h.pc
	rx := w.rx
	promoted := rx == rxShadow && w.taken < w.said
	ends := w.over(w.taken) < w.said
	first := promoted || rx == rxFallenBack && (w.returned || w.stands && ends || at == kEOF)
	if blind := at == kByte && m.fault == kNoLook || at == kEOF && m.fault == kNoEndLook; first && !blind {
		h.pc = kLook
		return true
	}
	if h.pc = kLook; at == kByte {
		m.takeShadow(w)
		h.pc = kTook
	} else {
		m.readEnd(w)
	}
	return true
}

// kBounds is how much may come in a walk.
type kBounds struct{ bytes, kills, forks, falls, ends, switches, closes int8 }

func (m *kModel) explore(b kBounds) explore.Result[kWorld] {
	m.rxN, m.txN, m.bytes = make(map[string]bool), make(map[string]bool), b.bytes
	w := kWorld{tx: txShadow, rx: rxShadow, kills: b.kills, forks: b.forks, falls: b.falls, ends: b.ends, switches: b.switches,
		closes: b.closes, counted: 1}
	w.holders[0][0].live, w.holders[1][0].live = true, true
	return explore.All(func(w kWorld) ([]kWorld, string) {
		after := m.next(w)
		return after, m.wrong
	}, w)
}

// kWalks are the bounds that are explored.
func kWalks() []kBounds {
	all := []kBounds{{1, 1, 1, 1, 1, 0, 0}, {2, 1, 1, 0, 0, 2, 0}, {2, 0, 0, 1, 0, 2, 0}, {1, 1, 1, 1, 0, 0, 2}}
	if !testing.Short() {
		all = append(all, kBounds{2, 1, 1, 1, 1, 0, 0}, kBounds{2, 1, 1, 1, 0, 1, 0}, kBounds{2, 2, 1, 1, 0, 0, 0})
	}
	if longtest.All() {
		all = append(all, kBounds{2, 2, 1, 1, 1, 0, 0}, kBounds{3, 1, 1, 1, 0, 2, 0}, kBounds{2, 2, 2, 1, 0, 0, 0},
			kBounds{2, 2, 1, 1, 0, 0, 2})
	}
	return all
}

// notModelled are rows of the tables that the model does not take: those without a segment, of an
// error of the shadow, and of a node.
func notModelled(row string) bool {
	return strings.HasPrefix(row, "tcp ") || strings.Contains(row, " refused ") || strings.Contains(row, " reset ") ||
		strings.Contains(row, " cut ") || strings.HasPrefix(row, "returning ended over")
}

func TestSharedModel(t *testing.T) {
	racetest.SkipModel(t)
	taken := make(map[string]bool)
	for _, b := range kWalks() {
		m := &kModel{}
		r := m.explore(b)
		if r.Wrong != "" {
			t.Fatalf("%+v: %v", b, r)
		}
		t.Logf("%+v: %v", b, r)
		for row := range m.rxN {
			taken["rx "+row] = true
		}
		for row := range m.txN {
			taken["tx "+row] = true
		}
	}
	for which, rows := range map[string][]string{"rx ": rxSteps.Rows(), "tx ": txSteps.Rows()} {
		for _, row := range rows {
			if f := strings.Fields(row); !notModelled(row) && !taken[which+f[0]+" "+f[1]] {
				t.Errorf("no walk takes the step %s%s", which, row)
			}
		}
	}
}

// TestSharedModelFaults: each fault is found.
func TestSharedModelFaults(t *testing.T) {
	racetest.SkipModel(t)
	longtest.Skip(t)
	for f := kFine + 1; f < kFaults; f++ {
		found := ""
		for _, b := range kWalks() {
			m := &kModel{fault: f}
			if r := m.explore(b); r.Wrong != "" {
				found = r.Wrong
				break
			}
		}
		if found == "" {
			t.Errorf("not found: %v", f)
			continue
		}
		t.Logf("%v: %s", f, found)
	}
}

package directsockets

import (
	"flag"
	"fmt"
	"testing"

	"exnet/internal/longtest"
	"exnet/internal/racetest"
)

// The wake-up protocol of a connection, explored exhaustively: every order of the steps
// of who reads, who writes, the peer, and those who end or interrupt them. A step is one
// access to what they share. The holders decide by signals.wanted and
// signals.interrupted, as the connection does; a lock is given back through a store
// buffer, as x86 has it. The doorbell's own protocol is in segment's wake_test.go.
//
// Three things must not be: that nobody can take a step any more, and a call sleeps that
// something has ended (lost); that work is left and nobody will do it (left); that
// threads go round for ever (livelock).

// The two directions.
const (
	mRX = iota
	mTX
)

// The threads.
const (
	thReader = iota
	thWriter
	thWatcher
	thPeer
	thFirst // the first actor
	thSecond
	threads
)

// world is a state of the model.
type world struct {
	flags, want      [2]uint8
	word             [2]uint8
	woken            [2]bool
	filePast         [2]bool // the doorbell's file has a deadline that has passed
	shadowPast       [2]bool
	open             [2]bool // the file is there
	sleeping         [2]bool
	armed            [2]bool
	edge             [2]bool // the poller has something to tell of the file
	mu               uint8   // Conn.mu: its holder + 1
	lockMu           [2]uint8
	waiting          [2]bool // somebody waits for the lock
	signalled        [2]bool
	watchOn          bool
	watching         bool // the watcher waits for the doorbell
	bell             bool
	data, room       bool
	gone, fallenBack bool
	fallenBackSeen   bool
	shadowEnd        bool
	th               [threads]strand
}

// strand is a thread: where it is, and its registers.
type strand struct {
	pc, back uint8 // back: where it goes on after what several places share
	half     uint8 // the direction that it is about
	work     uint8 // bits that it asks for
	s        packed
	awake    bool  // half.bell.awake
	freed    uint8 // 1 + the direction whose lock it has given back, in its store buffer
	op       uint8 // number of the step of an operation
}

// packed is what a thread has loaded of the signals.
type packed struct {
	flags, want uint8
	woken       bool
}

func (p packed) signals() signals {
	return signals{flags: uint32(p.flags), want: uint32(p.want), woken: p.woken}
}

func (w *world) flush(i int) {
	if t := &w.th[i]; t.freed > 0 {
		w.word[t.freed-1] = lockFree
		t.freed = 0
	}
}

// try is lock.try: a locked instruction.
func (w *world) try(i, h int) bool {
	w.flush(i)
	if w.word[h] != lockFree {
		return false
	}
	w.word[h] = lockHeld
	return true
}

// ring is what the peer does after a change that armed directions wait for.
func (w *world) ring() {
	w.bell = true
	w.tellPollers()
}

func (w *world) tellPollers() {
	for h := range w.edge {
		w.edge[h] = w.edge[h] || w.open[h] || h == mRX // rx has the End's own file
	}
}

// rung is End.Rung.
func (w *world) rung() bool { return w.bell || w.gone }

// fault is what a model does otherwise than the connection.
type fault uint8

const (
	noFault        fault = iota
	shutUnheeded         // CloseRead and CloseWrite do not end a wait
	shutUnwoken          // CloseWrite does not wake the holder for what it leaves
	clearWakeOn          // who has cleared its wake-up reads the shadow without a look at the segment
	wakeFirst            // who sets a flag wakes before
	tellNobody           // who reads the doorbell does not tell the other direction
	watchFirst           // the watcher takes watch.armed back before it reads the doorbell
	askPlain             // who leaves work has no barrier
	finishBlind          // finishOutbound does not do what others leave
	fallBackUnseen       // who sleeps in rx does not look whether the peer fell back
	tellBack             // who was woken tells the other direction, too
	faults
)

func (f fault) String() string {
	return [...]string{"none", "shut-unheeded", "shut-unwoken", "clear-wake-on", "wake-first", "tell-nobody",
		"watch-first", "ask-plain", "finish-blind", "fallback-unseen", "tell-back"}[f]
}

// Kinds of holders.
type holder uint8

const (
	nobody    holder = iota
	readsSegm        // Read in rxDirect
	readsBoth        // Read in rxShadow: in the shadow, watched
	writes           // Write in txDirect, no room
	awaits           // AwaitPosted
	finishes         // finishOutbound, which nobody waits for
)

// Events of the peer's.
type event uint8

const (
	noEvent    event = iota
	evData           // a message, or PROMOTE
	evRoom           // the peer takes what was sent
	evGone           // it closes
	evFallBack       // it falls back
	events
)

// Operations of the connection's own users.
type op uint8

const (
	noOp op = iota
	opCloseRead
	opCloseWrite
	opExpireRX
	opExpireTX
	opClose
	opDemote
	ops
)

// model is what is explored.
type model struct {
	reader, writer holder
	peer           event
	acts           [2]op
	fault          fault
}

func (m model) String() string {
	return fmt.Sprintf("reader %d writer %d peer %d ops %v fault %v", m.reader, m.writer, m.peer, m.acts, m.fault)
}

// coarse reports whether some steps are taken at once, since both directions wait and
// there are too many states else: a holder's loads of the signals, and a wake's stores. It
// does not spin then.
func (m *model) coarse() bool { return m.reader != nobody && m.writer != nobody }

// untilOf is what ends the wait of a holder.
func (m *model) untilOf(h holder) uint32 {
	if m.fault == shutUnheeded || h == awaits || h == finishes {
		return flagsStop
	}
	return flagsCall
}

func (m *model) start() world {
	w := world{}
	w.word[mRX], w.word[mTX] = lockHeld, lockHeld
	for i, h := range map[int]holder{thReader: m.reader, thWriter: m.writer} {
		if h == nobody {
			w.word[i], w.th[i].pc = lockFree, pcDone
		}
		w.th[i].half = uint8(i)
	}
	if m.peer == noEvent {
		w.th[thPeer].pc = pcDone
	}
	for i, o := range m.acts {
		if o == noOp {
			w.th[thFirst+i].pc = pcDone
		}
	}
	return w
}

// step returns the states that thread i can reach in one step.
func (m *model) step(w world, i int) []world {
	if w.th[i].pc == pcDone {
		return nil
	}
	switch i {
	case thReader:
		return m.hold(w, i, m.reader)
	case thWriter:
		return m.hold(w, i, m.writer)
	case thWatcher:
		return m.watch(w)
	case thPeer:
		return m.peerStep(w)
	}
	return m.act(w, i, m.acts[i-thFirst])
}

// wrong says what is wrong with a state in which nobody can take a step; "": nothing.
func (m *model) wrong(w *world) string {
	for i, h := range []holder{m.reader, m.writer} {
		ended := w.flags[i]&(flagExpired|flagClosed) != 0 || w.gone || i == mRX && w.data || i == mTX && (w.room || w.fallenBack)
		if h != awaits && h != finishes { // those wait on, until the peer has taken what was sent
			ended = ended || w.flags[i]&flagShut != 0
		}
		if h != nobody && ended && w.th[i].pc != pcDone {
			return fmt.Sprintf("lost: holder %d sleeps", i)
		}
		if w.want[i]&wantWork != 0 && w.flags[i]&flagClosed == 0 {
			return fmt.Sprintf("left: work %b of direction %d", w.want[i], i)
		}
	}
	for i := thFirst; i < threads; i++ {
		if w.th[i].pc != pcDone {
			return fmt.Sprintf("lost: actor %d of %v waits", i-thFirst, m.acts)
		}
	}
	if w.fallenBack && !w.fallenBackSeen && m.reader == readsSegm && w.th[thReader].pc != pcDone {
		return "lost: nobody has seen that the peer fell back"
	}
	return ""
}

// normal is w without what cannot matter any more.
func (m *model) normal(w world) world {
	for h := range w.woken {
		if w.th[h].pc == pcDone {
			w.woken[h], w.filePast[h], w.shadowPast[h], w.open[h], w.edge[h] = false, false, false, false, false
		}
	}
	for i := range w.th {
		if t := &w.th[i]; t.pc == pcDone {
			*t = strand{pc: pcDone, freed: t.freed}
		}
	}
	return w
}

// explore returns what is wrong in some order, and how many states there are.
func (m *model) explore() (wrong string, states int) {
	type frame struct {
		w    world
		next []world
	}
	const open, closed = 1, 2
	var lists [][]world // to be used again
	spare := func() (l []world) {
		if n := len(lists); n > 0 {
			l, lists = lists[n-1], lists[:n-1]
		}
		return l
	}
	color := map[world]uint8{}
	visit := func(w world) frame {
		color[w] = open
		f := frame{w: w, next: spare()}
		for i := range w.th {
			for _, n := range m.step(w, i) {
				f.next = append(f.next, m.normal(n))
			}
			if w.th[i].freed > 0 {
				v := w
				v.flush(i)
				f.next = append(f.next, m.normal(v))
			}
		}
		if len(f.next) == 0 {
			wrong = m.wrong(&w)
		}
		return f
	}
	stack := []frame{visit(m.start())}
	for len(stack) > 0 && wrong == "" {
		top := &stack[len(stack)-1]
		if len(top.next) == 0 {
			color[top.w] = closed
			lists = append(lists, top.next[:0])
			stack = stack[:len(stack)-1]
			continue
		}
		w := top.next[len(top.next)-1]
		top.next = top.next[:len(top.next)-1]
		switch color[w] {
		case open:
			wrong = "livelock"
		case 0:
			stack = append(stack, visit(w))
		}
	}
	return wrong, len(color)
}

var deep = flag.Bool("model.deep", false, "explore more combinations: takes a minute")

// models calls f with combinations of holders, an event of the peer's, and up to two
// operations, until f returns false.
func models(level int, f func(m model) bool) {
	for _, holders := range [][2]holder{
		{readsSegm, nobody}, {readsBoth, nobody}, {nobody, writes}, {nobody, awaits}, {nobody, finishes},
		{readsSegm, writes}, {readsBoth, writes}, {readsSegm, finishes},
	} {
		for e := range events {
			for a := range ops {
				for b := range a + 1 {
					m := model{reader: holders[0], writer: holders[1], peer: e, acts: [2]op{a, b}}
					if (b == noOp || a != b) && m.weight() <= level && !f(m) {
						return
					}
				}
			}
		}
	}
}

// weight is how many things happen at once, from which the number of states follows.
func (m model) weight() (n int) {
	for _, there := range []bool{m.coarse(), m.peer != noEvent, m.acts[0] != noOp, m.acts[1] != noOp} {
		if there {
			n++
		}
	}
	return n
}

// No order of a connection's wake-ups loses one.
func TestConnNoLostWakeUp(t *testing.T) {
	level := 2
	switch {
	case *deep:
		level = 3
	case testing.Short(), racetest.Enabled: // the detector has nothing to find in one goroutine, and takes ten times as long
		level = 1
	}
	count, states := 0, 0
	models(level, func(m model) bool {
		wrong, n := m.explore()
		count, states = count+1, states+n
		if wrong != "" {
			t.Errorf("%v: %s", m, wrong)
		}
		return !t.Failed()
	})
	t.Logf("%d combinations, %d states", count, states)
}

// The model finds every fault that is planted in it.
func TestConnModelFindsFaults(t *testing.T) {
	for f := noFault + 1; f < faults; f++ {
		t.Run(f.String(), func(t *testing.T) {
			if racetest.Enabled && f != shutUnheeded && f != askPlain {
				t.Skip("takes a minute with the race detector, which has nothing to find in it")
			}
			if f != shutUnheeded && f != askPlain {
				longtest.Skip(t)
			}
			found := ""
			models(2, func(m model) bool {
				m.fault = f
				if wrong, _ := m.explore(); wrong != "" {
					found = fmt.Sprintf("%v: %s", m, wrong)
				}
				return found == ""
			})
			if found == "" {
				t.Error("not found")
			}
			t.Log(found)
		})
	}
}

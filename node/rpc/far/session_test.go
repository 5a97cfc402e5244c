package far

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
)

// hosts are two nodes whose link can be cut.
type hosts struct {
	t     *testing.T
	cards [2]*nic.NIC
	all   [2]*Engine
	stop  [2]func() // of each Engine
	cut   func()
}

// heard is what an Engine of hosts hears and is told.
type heard struct {
	message func(from fabric.NodeID, b []byte)
	ended   func(fabric.NodeID)
}

func newHosts(t *testing.T, resume time.Duration, hear [2]heard) *hosts {
	t.Helper()
	h := &hosts{t: t, cut: func() {}}
	for i := range h.cards {
		h.cards[i] = fabrictest.NewNIC(t, fabric.NodeID(i))
		if err := mem.NewFabric().Attach(h.cards[i]); err != nil {
			t.Fatal(err)
		}
		h.start(i, resume, hear[i])
	}
	return h
}

// start starts the Engine of a node.
func (h *hosts) start(i int, resume time.Duration, hear heard) {
	h.t.Helper()
	e, err := New(h.cards[i], Config{
		VPID: VPID, Direct: true, Resume: resume,
		Hear: func(from fabric.NodeID, _ uint64, b []byte) { hear.message(from, b) },
		Ended: func(n fabric.NodeID, _ uint64) {
			if hear.ended != nil {
				hear.ended(n)
			}
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	e.stall = time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	h.stop[i] = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, e.Close()); err != nil {
			h.t.Error(err)
		}
	})
	h.t.Cleanup(h.stop[i])
	h.all[i] = e
}

// join links the nodes, as a daemon does.
func (h *hosts) join() {
	h.t.Helper()
	x, y := fabrictest.JoinStream(h.t, h.cards[0], h.cards[1], fabrictest.StreamConfig{Conns: 2}, nil)
	downs := [2]func(){h.all[0].Linked(1), h.all[1].Linked(0)}
	h.cut = func() {
		x.Close()
		y.Close()
		<-x.Done()
		<-y.Done()
		downs[0]()
		downs[1]()
	}
}

// What is sent is heard once and in order, however often the link is cut meanwhile.
func TestCut(t *testing.T) {
	const messages, cuts = 3000, 40
	var count [2]atomic.Int64
	progress := make(chan struct{}, 1)
	hear := func(i int) heard {
		random := rand.New(rand.NewPCG(uint64(1-i), 7))
		return heard{func(_ fabric.NodeID, b []byte) {
			n := count[i].Add(1)
			if want := size(random); len(b) != want || binary.LittleEndian.Uint64(b) != uint64(n) || b[len(b)-1] != byte(n) && len(b) > 8 {
				t.Errorf("node %d: message %d has %d bytes and number %d, want %d bytes", i, n, len(b), binary.LittleEndian.Uint64(b), want)
			}
			select {
			case progress <- struct{}{}:
			default:
			}
		}, func(n fabric.NodeID) { t.Errorf("node %d is told that node %d has ended", i, n) }}
	}
	h := newHosts(t, time.Hour, [2]heard{hear(0), hear(1)})
	h.join()
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for n := uint64(1); n <= messages; n++ {
				b := make([]byte, size(random))
				b[len(b)-1] = byte(n)
				binary.LittleEndian.PutUint64(b, n)
				by := send
				if n%3 == 0 {
					by = trySend
				}
				for err := by(h.all[i], fabric.NodeID(1-i), b); err != nil; err = send(h.all[i], fabric.NodeID(1-i), b) {
					if !errors.Is(err, fabric.ErrAgain) {
						t.Errorf("message %d of node %d: %v", n, i, err)
						return
					}
				}
				h.all[i].Flush(fabric.NodeID(1 - i))
			}
		})
	}
	for c := int64(1); c <= cuts; c++ { // evenly over the messages
		for count[0].Load()+count[1].Load() < c*2*messages/(cuts+2) {
			<-progress
		}
		h.cut()
		h.join()
	}
	all.Wait()
	for count[0].Load() < messages || count[1].Load() < messages {
		<-progress
	}
	h.cut()
}

// A message that failed on an older link does not end the one that has come meanwhile.
func TestFailedOnOlderLink(t *testing.T) {
	said := make(chan string, 10)
	nothing := heard{func(fabric.NodeID, []byte) {}, func(fabric.NodeID) {}}
	h := newHosts(t, time.Hour, [2]heard{nothing, {func(_ fabric.NodeID, b []byte) { said <- string(b) }, func(fabric.NodeID) {}}})
	h.join()
	e := h.all[0]
	send := func(text string) {
		if err := send(e, 1, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := <-said; got != text {
			t.Errorf("heard %q, want %q", got, text)
		}
	}
	send("one")
	up(e, 1)
	e.mu.Lock()
	s := e.sessions[1]
	older := s.link
	e.mu.Unlock()
	h.cut()
	h.join()
	up(e, 1)
	e.handleSendError(s, older, fabric.ErrPeerDown)
	send("two")
	h.cut()
}

// size is how many bytes a message has: most are small.
func size(random *rand.Rand) int {
	most := []int{8, 120, 121, 500, 5000, MaxMessage}
	return 8 + random.IntN(most[random.IntN(len(most))]-7)
}

// A node that has begun anew is not the one that a message was for.
func TestOtherEngine(t *testing.T) {
	ended, said := make(chan fabric.NodeID, 1), make(chan string, 10)
	hear := heard{func(_ fabric.NodeID, b []byte) { said <- string(b) }, func(fabric.NodeID) {}}
	h := newHosts(t, time.Hour, [2]heard{{func(fabric.NodeID, []byte) {}, func(n fabric.NodeID) { ended <- n }}, hear})
	h.join()
	send := func(text string) {
		if err := send(h.all[0], 1, []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	send("one")
	if got := <-said; got != "one" {
		t.Errorf("heard %q", got)
	}
	first, err := h.all[0].Session(1)
	if err != nil {
		t.Fatal(err)
	}
	h.cut()
	send("lost")
	e := h.all[1]
	e.mu.Lock()
	clear(e.sessions) // it dies without a word
	e.mu.Unlock()
	h.stop[1]()
	h.start(1, time.Hour, hear)
	h.join()
	if n := <-ended; n != 1 {
		t.Errorf("node %d has ended", n)
	}
	for _, by := range []func(fabric.NodeID, uint64, []byte) error{h.all[0].Send, h.all[0].TrySend} {
		if err := by(1, first, []byte("late")); !errors.Is(err, fabric.ErrPeerDown) {
			t.Errorf("a message of the session before: %v", err)
		}
	}
	send("two")
	if got := <-said; got != "two" {
		t.Errorf("heard %q", got)
	}
	h.cut()
}

// A session that its owner abandons is over at both ends.
func TestAbandon(t *testing.T) {
	ended, said := make(chan fabric.NodeID, 1), make(chan string, 10)
	nothing := func(fabric.NodeID, []byte) {}
	h := newHosts(t, time.Hour, [2]heard{
		{nothing, func(n fabric.NodeID) { t.Errorf("the owner is told that its session with node %d is over", n) }},
		{func(_ fabric.NodeID, b []byte) { said <- string(b) }, func(n fabric.NodeID) { ended <- n }},
	})
	h.join()
	if err := send(h.all[0], 1, []byte("one")); err != nil {
		t.Fatal(err)
	}
	<-said
	first, err := h.all[0].Session(1)
	if err != nil {
		t.Fatal(err)
	}
	h.all[0].Abandon(1, first)
	h.all[0].Abandon(1, first) // it is over
	if err := send(h.all[0], 1, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if n := <-ended; n != 0 {
		t.Errorf("node %d has ended", n)
	}
	if got := <-said; got != "two" {
		t.Errorf("heard %q", got)
	}
	h.cut()
}

// A node that says farewell, or has no link for too long, has ended, and nothing waits for it.
func TestNodeEnds(t *testing.T) {
	for _, how := range []string{"farewell", "too long"} {
		t.Run(how, func(t *testing.T) {
			ended, said := make(chan fabric.NodeID, 1), make(chan string, 10)
			resume := time.Hour
			if how == "too long" {
				resume = time.Millisecond
			}
			h := newHosts(t, resume, [2]heard{
				{func(fabric.NodeID, []byte) {}, func(n fabric.NodeID) { ended <- n }},
				{func(_ fabric.NodeID, b []byte) { said <- string(b) }, func(fabric.NodeID) {}},
			})
			h.join()
			if err := send(h.all[0], 1, []byte("one")); err != nil {
				t.Error(err)
			}
			<-said
			if how == "farewell" {
				h.all[1].close()
			} else {
				h.cut()
			}
			if n := <-ended; n != 1 {
				t.Errorf("node %d has ended", n)
			}
			if how == "too long" {
				if err := send(h.all[0], 1, []byte("two")); err == nil {
					t.Error("a message to a node that has ended is accepted")
				}
			}
		})
	}
}

// A node that was given up, because it was silent for too long, and lives all the same, hears
// that its session is over: by what it sends, or when it has returned a credit.
func TestGivenUp(t *testing.T) {
	for _, by := range []string{"message", "credit"} {
		t.Run(by, func(t *testing.T) {
			var ended [2]atomic.Int64
			told := make(chan fabric.NodeID, 1)
			h := newHosts(t, time.Hour, [2]heard{
				{func(fabric.NodeID, []byte) {}, func(fabric.NodeID) { ended[0].Add(1) }},
				{func(fabric.NodeID, []byte) {}, func(n fabric.NodeID) { told <- n }},
			})
			h.join()
			if err := send(h.all[0], 1, []byte("one")); err != nil {
				t.Fatal(err)
			}
			up := func(i int) *session {
				e := h.all[i]
				e.mu.Lock()
				defer e.mu.Unlock()
				if s := e.sessions[fabric.NodeID(1-i)]; s != nil && s.state == stateUp {
					return s
				}
				return nil
			}
			for up(0) == nil || up(1) == nil {
				time.Sleep(time.Millisecond)
			}
			e := h.all[0]
			e.handleSendError(up(0), 0, ErrStalled)
			if ended[0].Load() != 1 {
				t.Error("its owner is not told of the end")
			}
			if by == "message" {
				if err := send(h.all[1], 0, []byte("two")); err != nil {
					t.Error(err)
				}
			}
			if by == "credit" { // one that was refused is told of those that come back
				d := velo.Descriptor{Dst: 1, VPID: VPID, Tag: tagFirst | tagLast | tagControl, Quiet: true}
				var err error
				for err == nil {
					err = e.box.Send(d, control{kind: kindAck}.bytes())
				}
				if !errors.Is(err, fabric.ErrAgain) {
					t.Fatal(err)
				}
				e.box.Interrupt(1, VPID)
			}
			if n := <-told; n != 0 {
				t.Errorf("node %d has ended", n)
			}
			h.cut()
		})
	}
}

// Messages to a node without a link wait, as many as there is room for.
func TestRoom(t *testing.T) {
	var got atomic.Int64
	h := newHosts(t, time.Hour, [2]heard{{func(fabric.NodeID, []byte) {}, nil}, {func(fabric.NodeID, []byte) { got.Add(1) }, nil}})
	h.join()
	if err := send(h.all[0], 1, []byte("one")); err != nil {
		t.Fatal(err)
	}
	for got.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	h.cut()
	n := int64(1)
	b := make([]byte, MaxMessage)
	var err error
	for ; err == nil; n++ {
		err = trySend(h.all[0], 1, b)
	}
	if n--; !errors.Is(err, fabric.ErrAgain) || n < waitingBytes/MaxMessage {
		t.Errorf("after %d messages: %v", n, err)
	}
	sent := make(chan error)
	go func() { sent <- send(h.all[0], 1, b) }() // it waits for room
	h.join()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	for got.Load() < n+1 {
		time.Sleep(time.Millisecond)
	}
	h.cut()
}

// Only enter makes transitions, and it makes those of the table.
func TestTransitions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			writes += strings.Count(string(b), ".state = ")
		}
	}
	if writes != 1 {
		t.Errorf("%d lines write a session's state, want 1", writes)
	}
	spec, err := os.ReadFile("../../../ports/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(spec), "\n## 7. ")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := make(map[[2]string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z]+) \| ([a-z]+) \| ([a-z]+) \|$`).FindAllStringSubmatch(section, -1) {
		if row[1] != "state" {
			rows[[2]string{row[1], row[2]}] = row[3]
		}
	}
	for from, steps := range transitions {
		for ev, to := range steps {
			at := [2]string{state(from).String(), ev.String()}
			if rows[at] != to.String() {
				t.Errorf("%v becomes %v; SPEC.md has %q", at, to, rows[at])
			}
			delete(rows, at)
		}
	}
	if len(rows) > 0 {
		t.Errorf("only SPEC.md has %v", rows)
	}
	for from := stateGreeting; from <= stateOver; from++ {
		for ev := eventLinked; ev <= eventAbandoned; ev++ {
			e := &Engine{stall: time.Hour, resume: time.Hour, sessions: make(map[fabric.NodeID]*session), links: make(map[fabric.NodeID]uint64)}
			e.credit.L = &e.mu
			e.mu.Lock()
			s := e.newSessionLocked(1)
			s.state = from
			want, changes := transitions[from][ev]
			if !changes {
				want = from
			}
			ended := e.applyEvent(s, ev)
			if s.state != want || ended != (changes && want == stateOver) || (e.sessions[1] == nil) != (changes && want == stateOver) {
				t.Errorf("%v in %v: %v, ended %v", ev, from, s.state, ended)
			}
			s.patience.end()
			e.mu.Unlock()
		}
	}
}

// A session begins to send when the other end has said that it knows it: before, that would not
// hear a message.
func TestUpWhenKnown(t *testing.T) {
	e := &Engine{stall: time.Hour, sessions: make(map[fabric.NodeID]*session), links: make(map[fabric.NodeID]uint64), ended: func(fabric.NodeID, uint64) {}}
	e.mu.Lock()
	e.credit.L = &e.mu
	e.mu.Unlock()
	box, err := fabrictest.NewNIC(t, 0).OpenVELO(VPID, velo.Config{Slots: slots, Credits: credits})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	e.box = box
	e.receiving.Lock()
	defer e.receiving.Unlock()
	hello := func(yours uint64) *session {
		e.hearControl(1, control{kindHello, 0, 0, 5, yours}.bytes())
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.sessions[1]
	}
	s := hello(0)
	defer s.patience.timer.Stop()
	if s.state != stateGreeting || s.theirs != 5 {
		t.Errorf("after a hello that does not know this end: %v", s.state)
	}
	if s = hello(s.mine); s.state != stateUp {
		t.Errorf("after a hello that does: %v", s.state)
	}
}

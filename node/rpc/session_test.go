package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"exnet/node/rpc/caller"
)

// note is a message of a protocol for tests.
type note struct{ number, value uint32 }

var notes = Form[note]{
	Size: 8, Descriptors: 1,
	Append: func(n note, b []byte) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, n.number), n.value)
	},
	Parse: func(b []byte) (note, error) {
		if len(b) != 8 {
			return note{}, ErrRule
		}
		return note{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])}, nil
	},
	Number: func(n *note) *uint32 { return &n.number },
}

// sent is a Sender that keeps what is posted.
type sent struct{ all chan note }

func (s sent) Post(b []byte, _ ...int) error {
	n, err := notes.Parse(b)
	s.all <- n
	return err
}
func (sent) Abort() {}

func answerTo(n note, value uint32) *Heard[note] {
	return &Heard[note]{Message: note{n.number | Answered, value}}
}

func none(*Heard[note]) error { return errors.New("an event") }

// An answer is worked off before what comes after it, whoever waits for it; one that comes late
// is undone, one that comes twice is none.
func TestAsk(t *testing.T) {
	out := sent{make(chan note, 10)}
	s := NewSession(&notes, out)
	var taken []uint32
	take := func(h *Heard[note], late bool) {
		if late {
			h.Message.value += 1000
		}
		taken = append(taken, h.Message.value)
		h.Message.value++
	}
	got := make(chan note, 1)
	go func() {
		n, err := s.Ask(t.Context(), note{value: 5}, take)
		if err != nil {
			t.Error(err)
		}
		got <- n
	}()
	first := <-out.all
	for range 2 {
		if err := s.Hear(answerTo(first, 7), none); err != nil {
			t.Error(err)
		}
	}
	if n := <-got; n.value != 8 || len(taken) != 1 || taken[0] != 7 {
		t.Errorf("%+v, %v", n, taken)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s.Ask(over, note{}, take); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Ask(over, note{}, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 2 {
		if err := s.Hear(answerTo(<-out.all, 9), none); err != nil {
			t.Error(err)
		}
	}
	if len(taken) != 2 || taken[1] != 1009 {
		t.Errorf("%v", taken)
	}
	if err := s.Hear(&Heard[note]{Message: note{number: 1}}, none); err == nil {
		t.Error("a request is an answer")
	}
}

// The end of a session answers all who wait, and later ones at once.
func TestSessionEnds(t *testing.T) {
	out := sent{make(chan note, 10)}
	s := NewSession(&notes, out)
	var ended atomic.Int32
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := s.Ask(context.Background(), note{}, nil); !errors.Is(err, ErrOver) {
				t.Error(err)
			}
		})
		<-out.all
	}
	if !s.Begin(note{}, func(h *Heard[note], late bool) {
		if h == nil && !late {
			ended.Add(1)
		}
	}) {
		t.Error("it is over")
	}
	if !s.End() || s.End() || !s.Over() {
		t.Error("it ends once")
	}
	all.Wait()
	if ended.Load() != 1 || s.Begin(note{}, nil) {
		t.Errorf("told %d times", ended.Load())
	}
}

// What is said of something waits for the answer that gives it; of two words, the later one is
// said.
func TestTurn(t *testing.T) {
	var turn Turn
	var said []string
	say := func(s string) func() { return func() { said = append(said, s) } }
	turn.After(say("early"))
	turn.After(say("last"))
	if len(said) != 0 {
		t.Errorf("%v", said)
	}
	turn.Answered()
	turn.Answered()
	turn.After(say("later"))
	if len(said) != 2 || said[0] != "last" || said[1] != "later" {
		t.Errorf("%v", said)
	}
}

// connection is a Connection that counts its ends.
type connection struct{ aborted, closed atomic.Int32 }

func (c *connection) Abort()     { c.aborted.Add(1) }
func (c *connection) Bare() bool { return true }
func (c *connection) Close()     { c.closed.Add(1) }

// A Hub bounds the sessions of processes, ends all of them, and waits for work. No work begins
// after its end.
func TestHub(t *testing.T) {
	h := Hub{PerAccount: 2, Total: 3}
	var c connection
	enter := func(a caller.Account, counts, want bool) {
		t.Helper()
		if err := h.enterSession(&c, a, counts); errors.Is(err, ErrTooMany) == want || err != nil && want {
			t.Errorf("%v: %v", a, err)
		}
	}
	enter(1000, true, true)
	enter(1000, true, true)
	enter(1000, true, false)
	enter(1000, false, true)
	enter(caller.Root, true, true)
	enter(1001, true, true)
	enter(1002, true, false)
	h.leaveSession(&c, 1000, true)
	enter(1000, true, true)

	begun, end := make(chan struct{}), make(chan struct{})
	var done atomic.Int32
	h.Go(func() { close(begun); <-end; done.Add(1) })
	<-begun
	h.End()
	h.Go(func() { t.Error("work begins after the end") })
	h.Finish(func() { <-end; done.Add(1) })
	close(end)
	h.Wait()
	if done.Load() != 2 || !h.Ended() || c.aborted.Load() == 0 {
		t.Errorf("%d done, %d aborted", done.Load(), c.aborted.Load())
	}
	before := c.aborted.Load()
	enter(caller.Root, true, true)
	if c.aborted.Load() != before+1 {
		t.Error("a session begins after the end")
	}
}

// Work that begins while a Hub ends is waited for, or does not begin. -race sees what else it
// does.
func TestHubEndsAtOnce(t *testing.T) {
	for range 50 {
		var h Hub
		var running atomic.Int32
		var all sync.WaitGroup
		all.Go(func() {
			for range 100 {
				h.Go(func() { running.Add(1); running.Add(-1) })
			}
		})
		h.End()
		h.Wait()
		if n := running.Load(); n != 0 {
			t.Errorf("%d run after the end", n)
		}
		all.Wait()
	}
}

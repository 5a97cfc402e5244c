package rpc

import (
	"context"
	"sync"
)

// Answered marks the number of an answer, since both sides of a session number their requests.
const Answered = 1 << 31

// Form says how the messages of a protocol look.
type Form[M any] struct {
	Size, Descriptors int // of a message, at most
	Append            func(m M, b []byte) []byte
	Parse             func(b []byte) (M, error)
	Number            func(*M) *uint32 // the field that has a request's number
}

// Heard is a message that the other side has sent.
type Heard[M any] struct {
	Message M
	Fds     Descriptors // the receiver closes those that nobody takes
	More    []byte      // what follows the message; borrowed until return
}

// Sender sends messages and waits for nobody. Abort ends the session.
type Sender interface {
	Post(b []byte, fds ...int) error
	Abort()
}

// Session sends requests and events to the other side, and finds who waits for an answer.
//
// Concurrency: all methods may be called from many goroutines, but Hear from one.
type Session[M any] struct {
	form *Form[M]
	out  Sender

	mu    sync.Mutex
	last  uint32               // +checklocks:mu
	asked map[uint32]*asked[M] // +checklocks:mu
	over  bool                 // +checklocks:mu
}

// asked is a request that was not answered.
type asked[M any] struct {
	take   func(h *Heard[M], late bool)
	late   bool // nobody waits any more; belongs to the session's lock
	answer M
	err    error
	done   chan struct{} // closed when there is an answer, or an error
}

// NewSession returns a session whose messages out sends.
func NewSession[M any](form *Form[M], out Sender) *Session[M] {
	return &Session[M]{form: form, out: out, asked: make(map[uint32]*asked[M])}
}

// Post sends a message, and what follows it. An error is the end of the session.
func (s *Session[M]) Post(m M, more []byte, fds ...int) error {
	err := s.out.Post(append(s.form.Append(m, nil), more...), fds...)
	if err != nil {
		s.out.Abort()
	}
	return err
}

// Abort ends the session soon.
func (s *Session[M]) Abort() { s.out.Abort() }

// Begin sends a request. take is called with the answer before anything is heard that came after
// it; with nil if the session ends before. It returns false, and does not call take, if the
// session is over.
func (s *Session[M]) Begin(m M, take func(h *Heard[M], late bool), fds ...int) bool {
	_, _, ok := s.beginRequest(m, take, fds)
	return ok
}

func (s *Session[M]) beginRequest(m M, take func(h *Heard[M], late bool), fds []int) (a *asked[M], number uint32, ok bool) {
	a = &asked[M]{take: take, done: make(chan struct{})}
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return nil, 0, false
	}
	s.last = (s.last + 1) % Answered
	number = s.last
	s.asked[number] = a
	s.mu.Unlock()
	*s.form.Number(&m) = number
	_ = s.Post(m, nil, fds...) // the end of the session comes
	return a, number, true
}

// Ask is Begin that waits for the answer, which take may change, until ctx ends. If it comes
// after that, take is called with late, to undo what the other side has done; nil: there is
// nothing to undo. ErrOver: the session has ended.
func (s *Session[M]) Ask(ctx context.Context, m M, take func(h *Heard[M], late bool)) (answer M, err error) {
	a, number, ok := s.beginRequest(m, take, nil)
	if !ok {
		return answer, ErrOver
	}
	select {
	case <-a.done:
		return a.answer, a.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if s.asked[number] == a {
		a.late = true
		if take == nil {
			delete(s.asked, number)
		}
		s.mu.Unlock()
		return answer, context.Cause(ctx)
	}
	s.mu.Unlock()
	<-a.done // in the last moment
	return a.answer, a.err
}

// Hear takes what the other side has sent: answers, and for handle all else.
func (s *Session[M]) Hear(h *Heard[M], handle func(*Heard[M]) error) error {
	number := *s.form.Number(&h.Message)
	if number&Answered == 0 {
		return handle(h)
	}
	s.mu.Lock()
	a := s.asked[number&^Answered]
	delete(s.asked, number&^Answered)
	late := a != nil && a.late
	s.mu.Unlock()
	if a == nil {
		return nil // nobody waits, or it is an answer to nothing
	}
	if a.take != nil {
		a.take(h, late)
	}
	a.answer = h.Message
	close(a.done)
	return nil
}

// End ends all requests. It returns whether this is the first call.
func (s *Session[M]) End() bool {
	s.mu.Lock()
	all, over := s.asked, s.over
	s.asked, s.over = nil, true
	s.mu.Unlock()
	for _, a := range all {
		a.err = ErrOver
		if a.take != nil && !a.late {
			a.take(nil, false)
		}
		close(a.done)
	}
	return !over
}

// Over says whether the session has ended.
func (s *Session[M]) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Turn keeps what is said about something behind the answer that gives it. Whoever owns it
// guards it by a lock. The zero Turn waits for its answer.
type Turn struct {
	answered bool
	last     func() // what is said after the answer
}

// After calls f after the answer, in place of an earlier one that still waits.
func (t *Turn) After(f func()) {
	if t.answered {
		f()
	} else {
		t.last = f
	}
}

// Answered is called when the answer was sent.
func (t *Turn) Answered() {
	last := t.last
	*t = Turn{answered: true}
	if last != nil {
		last()
	}
}

package far

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"exnet/fabric"
	"exnet/fabric/velo"
)

// Send sends b, which it copies, as a message of a session. It waits for room. It fails if the
// session is over, as when the node takes nothing or the Engine is closed. What was sent without
// an error is heard once, unless the session ends.
func (e *Engine) Send(to fabric.NodeID, session uint64, b []byte) error {
	if len(b) < 1 || len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrSize, len(b))
	}
	m := e.sendingTo(to)
	m.Lock()
	defer m.Unlock()
	s, err := e.sessionByNumber(to, session)
	if err != nil {
		return err
	}
	for {
		e.flushSession(s) // also what a new link is to send once more
		if queued, err := e.queueMessage(s, b); err != nil {
			return err
		} else if queued {
			break
		}
	}
	e.flushSession(s)
	return nil
}

// queueMessage adds a message to what waits. Without room it waits for some, and returns false.
func (e *Engine) queueMessage(s *session, b []byte) (queued bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.state == stateOver {
		return false, e.overLocked(s.node)
	}
	if !s.hasRoom(len(b)) {
		e.credit.Wait()
		return false, nil
	}
	s.pushMessage(b)
	return true, nil
}

// flushSession sends what waits, if the session is up. The node's sending is held.
func (e *Engine) flushSession(s *session) {
	for {
		e.mu.Lock()
		at := s.sentTo - s.acked
		if s.state != stateUp || at >= uint32(len(s.waiting)) {
			e.mu.Unlock()
			return
		}
		b, number, link := s.waiting[at], s.sentTo+1, s.link
		s.sentTo = number
		e.mu.Unlock()
		if err := s.cutMessage(number, b, func(tag uint8, p []byte) error { return e.sendPiece(s.node, tag, p) }); err != nil {
			e.handleSendError(s, link, err)
		}
	}
}

// handleSendError works off what kept a message from being sent on a link: the message waits for
// the next link, which may have come already, or the session is over.
func (e *Engine) handleSendError(s *session, link uint64, err error) {
	var ended bool
	e.mu.Lock()
	switch {
	case errors.Is(err, ErrStalled), errors.Is(err, fabric.ErrClosed):
		ended = e.giveUpLocked(s, eventLate)
	case s.link == link:
		ended = e.applyEvent(s, eventUnlinked)
	}
	e.mu.Unlock()
	if ended {
		e.ended(s.node, s.number)
	}
}

// TrySend is Send that does not wait: the error wraps fabric.ErrAgain if there is no room, or
// another message is being sent, and ErrStalled if calls have found none for 10 s. Flush
// follows, after one message or several.
//
// +checklocksignore: it does not know TryLock
func (e *Engine) TrySend(to fabric.NodeID, session uint64, b []byte) error {
	if len(b) < 1 || len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrSize, len(b))
	}
	m := e.sendingTo(to)
	if !m.TryLock() {
		return fmt.Errorf("far: node %d: %w", to, fabric.ErrAgain)
	}
	defer m.Unlock()
	s, err := e.sessionByNumber(to, session)
	if err != nil {
		return err
	}
	e.mu.Lock()
	at := uint32(len(s.waiting))
	now := s.state == stateUp
	switch {
	case s.state == stateOver:
		defer e.mu.Unlock()
		return e.overLocked(to)
	case !s.hasRoom(len(b)), now && s.sentTo-s.acked != at: // or resend is about to send it
		e.mu.Unlock()
		return fmt.Errorf("far: node %d: %w", to, fabric.ErrAgain)
	}
	s.pushMessage(b)
	number, link := s.acked+at+1, s.link
	if now {
		s.sentTo = number
	}
	e.mu.Unlock()
	if !now {
		return nil
	}
	// What is cut short here is not heard: the next message begins with its first piece.
	err = s.cutMessage(number, b, func(tag uint8, p []byte) error {
		return e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag, Quiet: true}, p)
	})
	if err == nil {
		return nil
	}
	if !errors.Is(err, fabric.ErrAgain) {
		e.handleSendError(s, link, err)
		return nil
	}
	e.mu.Lock()
	if last := len(s.waiting) - 1; s.state == stateUp && s.acked+uint32(last)+1 == number && s.sentTo == number {
		s.waiting, s.bytes, s.sentTo = s.waiting[:last], s.bytes-len(b), number-1
		e.mu.Unlock()
		return e.creditError(to, err)
	}
	e.mu.Unlock()
	return nil // the link has ended meanwhile: it is sent on the next one
}

// sendControl sends a control. It waits for credit elsewhere.
func (e *Engine) sendControl(to fabric.NodeID, c control) error {
	const tag = tagFirst | tagLast | tagControl
	b := c.bytes()
	err := e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag}, b)
	if errors.Is(err, fabric.ErrAgain) {
		go func() { _ = e.sendPiece(to, tag, b) }() // the next link says it again
		return nil
	}
	return err
}

// trial is the time for which TrySend has found no credit of a node.
type trial struct{ begun, last time.Time }

// creditError returns the error of TrySend that has found no credit.
func (e *Engine) creditError(to fabric.NodeID, err error) error {
	e.box.Interrupt(to, e.vpid) // for the pieces sent without one
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.trials[to]
	if !ok || now.Sub(t.last) > e.stall/4 { // nobody has tried meanwhile
		t.begun = now
	}
	t.last = now
	e.trials[to] = t
	if now.Sub(t.begun) > e.stall {
		e.stalled[to] = now.Add(e.stall)
	}
	if e.stalledLocked(to) {
		return fmt.Errorf("far: node %d: %w", to, ErrStalled)
	}
	return err
}

// Flush lets a node know of what TrySend has sent to it.
func (e *Engine) Flush(to fabric.NodeID) { e.box.Interrupt(to, e.vpid) }

// cutMessage calls f with the pieces of a message and their tags.
func (s *session) cutMessage(number uint32, b []byte, f func(tag uint8, p []byte) error) error {
	var head [velo.MaxPayload]byte
	binary.LittleEndian.PutUint32(head[:], number)
	binary.LittleEndian.PutUint32(head[4:], uint32(s.mine))
	binary.LittleEndian.PutUint16(head[8:], uint16(len(b)-1))
	n := copy(head[headSize:], b)
	piece := head[:headSize+n]
	for first := uint8(tagFirst); ; first = 0 {
		b = b[n:]
		tag := first
		if len(b) == 0 {
			tag |= tagLast
		}
		if err := f(tag, piece); err != nil || len(b) == 0 {
			return err
		}
		n = min(len(b), velo.MaxPayload)
		piece = b[:n]
	}
}

// sendPiece sends a piece when there is credit.
func (e *Engine) sendPiece(to fabric.NodeID, tag uint8, p []byte) error {
	for {
		e.mu.Lock()
		before, closed := e.returns[to], e.closed
		e.mu.Unlock()
		if closed {
			return fmt.Errorf("far: send: %w", fabric.ErrClosed)
		}
		err := e.box.Send(velo.Descriptor{Dst: to, VPID: e.vpid, Tag: tag, Quiet: tag&tagLast == 0}, p)
		if !errors.Is(err, fabric.ErrAgain) {
			return err
		}
		e.box.Interrupt(to, e.vpid) // for the pieces sent without one
		if !e.awaitCredit(to, before) {
			return fmt.Errorf("far: node %d: %w", to, ErrStalled)
		}
	}
}

// awaitCredit waits for a credit of the node to after its first n, or the Engine's end. It
// returns false if that node takes nothing.
func (e *Engine) awaitCredit(to fabric.NodeID, n uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stalledLocked(to) {
		return false
	}
	var p patience
	p.timer = time.AfterFunc(e.stall, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if p.endPart() {
			e.credit.Broadcast()
		}
	})
	p.beginWait(e.stall)
	defer p.end()
	for e.returns[to] == n && !e.closed && !p.isOver() {
		e.credit.Wait()
	}
	if p.isOver() && e.returns[to] == n && !e.closed {
		e.stalled[to] = time.Now().Add(e.stall)
		return false
	}
	return true
}

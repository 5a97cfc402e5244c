package far

import (
	"context"
	"encoding/binary"

	"exnet/fabric"
	"exnet/internal/ctxend"
)

// Run receives messages until ctx is cancelled, then returns nil.
func (e *Engine) Run(ctx context.Context) error {
	defer ctxend.Do(ctx, e.close)()
	if e.direct {
		e.box.OnInterrupt(e.receivePieces)
		e.receivePieces()
		<-ctx.Done()
		e.receiving.Lock()
		defer e.receiving.Unlock()
		e.over = true
		return nil
	}
	e.box.OnInterrupt(e.interrupt)
	e.receiving.Lock()
	defer e.receiving.Unlock()
	for {
		for e.takePiece() {
		}
		if e.box.EnableInterrupt() {
			continue
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// receivePieces takes what has come, in the goroutine that it is called in.
func (e *Engine) receivePieces() {
	if e.calls.Add(1) != 1 {
		return
	}
	e.receiving.Lock()
	defer e.receiving.Unlock()
	for n := int32(1); ; n = e.calls.Load() {
		for !e.over && e.takePiece() {
		}
		if !e.over && e.box.EnableInterrupt() {
			continue
		}
		if e.calls.CompareAndSwap(n, 0) {
			return
		}
	}
}

func (e *Engine) interrupt() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// message is a message whose pieces are arriving.
type message struct {
	b    []byte
	lost bool // too long, or without its first piece
}

// takePiece takes a piece. It returns false if there is none.
//
// +checklocks:e.receiving
func (e *Engine) takePiece() bool {
	st, p, ok := e.box.Peek()
	if !ok {
		return false
	}
	if st.Tag&tagControl != 0 { // also within a message
		var b [controlSize]byte
		n := copy(b[:], p)
		e.box.Advance()
		e.hearControl(st.Src, b[:n])
		return true
	}
	m := e.parts[st.Src]
	if m == nil {
		m = &message{lost: true}
		e.parts[st.Src] = m
	}
	if st.Tag&tagFirst != 0 { // a link that went down may have cut the last one short
		m.b, m.lost = m.b[:0], false
	}
	m.lost = m.lost || len(m.b)+len(p) > headSize+MaxMessage
	if !m.lost {
		m.b = append(m.b, p...)
	}
	last := st.Tag&tagLast != 0
	e.box.Advance()
	if last {
		if !m.lost {
			e.handleMessage(st.Src, m.b)
		}
		m.b, m.lost = m.b[:0], true // until the first piece of the next
	}
	return true
}

// handleMessage works off a whole message: it is heard if it is the next one of its session.
//
// +checklocks:e.receiving
func (e *Engine) handleMessage(from fabric.NodeID, b []byte) {
	if len(b) < headSize || len(b)-headSize != int(binary.LittleEndian.Uint16(b[8:]))+1 {
		return
	}
	number, end := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	e.mu.Lock()
	s := e.sessions[from]
	if s == nil { // it does not know that the session is over
		e.mu.Unlock()
		e.greetNode(from)
		return
	}
	if s.theirs == 0 || end != uint32(s.theirs) {
		e.mu.Unlock()
		return
	}
	next, answer := s.heardLocked(number, len(b))
	e.mu.Unlock()
	if next {
		e.hear(from, s.number, b[headSize:])
	}
	if answer.kind != 0 {
		_ = e.sendControl(from, answer)
	}
}

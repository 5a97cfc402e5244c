package ports

import (
	"context"
	"math/rand/v2"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
)

// farLocked returns the node of a session, or nil if that session is over. A later session ends the
// one before it.
//
// +checklocks:s.mu
func (s *Server) farLocked(n fabric.NodeID, session uint64) *farNode {
	f := s.fars[n]
	switch {
	case f != nil && f.session == session:
		return f
	case s.hub.Ended() || s.cfg.Far == nil || n == s.cfg.Node || session <= s.farsOver[n] || f != nil && session < f.session:
		return nil
	case f != nil:
		s.farDownLocked(f)
	}
	// An answer of a session that is over is for no request of this one: numbers begin anywhere.
	f = &farNode{server: s, id: n, session: session, number: rand.Uint32N(rpc.Answered / 2), asked: make(map[uint32]chan farMessage), pairs: make(map[pair]*farPair), streams: make(map[uint32]*farPair)}
	s.fars[n] = f
	return f
}

// far returns the node, or nil if it is on this host or not reachable.
func (s *Server) far(n fabric.NodeID) *farNode {
	if s.cfg.Far == nil || n == s.cfg.Node || !s.cfg.Far.Reaches(n) {
		return nil
	}
	session, err := s.cfg.Far.Session(n)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.farLocked(n, session)
}

// send sends a message of the node's session. The server's lock is not held. After an error the
// session is over.
func (f *farNode) send(m wire.Message, data []byte) error {
	b, _ := m.AppendBinary(nil) // it does not fail
	err := f.server.cfg.Far.Send(f.id, f.session, append(b, data...))
	if err != nil {
		f.server.mu.Lock()
		f.server.farDownLocked(f)
		f.server.mu.Unlock()
	}
	return err
}

// postLocked sends a message some time. The server's lock is held.
func (f *farNode) postLocked(m wire.Message, access bool) {
	if len(f.posts) >= farPosts && m.Op != wire.OpFarGone { // each pair has one of those
		return
	}
	f.posts = append(f.posts, farPost{m, access})
	if !f.posting {
		f.posting = true
		go f.flush()
	}
}

// flush sends what postLocked has put off.
func (f *farNode) flush() {
	s := f.server
	for {
		s.mu.Lock()
		all := f.posts
		f.posts, f.posting = nil, len(all) > 0
		s.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, m := range all {
			if m.access {
				m.Message = s.farRegister(m.Message)
			}
			if f.send(m.Message, nil) != nil {
				break // the rest is for nobody
			}
		}
	}
}

// sendRequest sends a request. The returned channel yields the answer; it is closed without one
// if the node goes down. The number is for forgetRequest.
func (f *farNode) sendRequest(m wire.Message, data []byte) (<-chan farMessage, uint32) {
	f.server.mu.Lock()
	c := f.expectLocked(&m)
	down := f.down
	f.server.mu.Unlock()
	if !down {
		_ = f.send(m, data) // an error closes c
	}
	return c, m.Number
}

// expectLocked gives a request its number, and returns the channel of sendRequest. The server's
// lock is held.
func (f *farNode) expectLocked(m *wire.Message) <-chan farMessage {
	c := make(chan farMessage, 1)
	if f.down {
		close(c)
		return c
	}
	f.number = (f.number + 1) % rpc.Answered
	m.Number = f.number
	f.asked[m.Number|rpc.Answered] = c
	return c
}

// forgetRequest is for a request whose answer nobody waits for any more.
func (f *farNode) forgetRequest(number uint32) {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	delete(f.asked, number|rpc.Answered)
}

// sendAndWait sends a request and waits for its answer, or until end is closed.
func (f *farNode) sendAndWait(m wire.Message, data []byte, end <-chan struct{}) farMessage {
	c, number := f.sendRequest(m, data)
	return f.waitAnswer(c, number, end)
}

func (f *farNode) waitAnswer(c <-chan farMessage, number uint32, end <-chan struct{}) farMessage {
	select {
	case a, ok := <-c:
		if ok {
			return a
		}
	case <-end:
		f.forgetRequest(number)
	}
	return farMessage{Message: wire.Message{Status: wire.StatusNoNode}}
}

// callSoon is call of what a node answers by itself: it waits for a while only.
func (f *farNode) callSoon(m wire.Message) wire.Message {
	ctx, cancel := context.WithTimeout(context.Background(), f.server.farTime)
	defer cancel()
	f.server.mu.Lock()
	c := f.expectLocked(&m)
	f.postLocked(m, false)
	f.server.mu.Unlock()
	return f.waitAnswer(c, m.Number, ctx.Done()).Message
}

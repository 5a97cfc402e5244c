package mesh

import (
	"context"
	"encoding/json"
	"fmt"

	"exnet/fabric"
)

// Request has OnRequest of a node of another host answer text, which is JSON of at most MaxText
// bytes.
// fabric.ErrPeerDown: that node is not linked, or is lost before it answers.
func (m *Mesh) Request(ctx context.Context, to fabric.NodeID, text []byte) ([]byte, error) {
	m.mu.Lock()
	s := m.sessions[to]
	m.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("mesh: node %d: %w", to, fabric.ErrPeerDown)
	}
	answer := make(chan []byte, 1)
	p := &parcel{ID: m.requests.Add(1), Text: text}
	if err := s.checkSize(news{Request: p}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.asked[p.ID] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asked, p.ID)
		s.mu.Unlock()
	}()
	s.queueNews(news{Request: p})
	select {
	case text := <-answer:
		return text, nil
	case <-s.over:
		return nil, fmt.Errorf("mesh: node %d: %w", to, fabric.ErrPeerDown)
	case <-ctx.Done():
		return nil, fmt.Errorf("mesh: node %d does not answer: %w", to, context.Cause(ctx))
	}
}

// checkSize reports that a message cannot be sent, which would end the session.
func (*session) checkSize(n news) error {
	_, err := appendMessage(nil, n)
	return err
}

// handleParcel handles a request or an answer of the peer. A request is answered before the next
// message is read, so a peer cannot have more than one handled at a time.
func (s *session) handleParcel(n news) error {
	if p := n.Answer; p != nil {
		s.mu.Lock()
		answer := s.asked[p.ID] // nil: it came too late
		delete(s.asked, p.ID)
		s.mu.Unlock()
		if answer != nil {
			answer <- p.Text
		}
	}
	if p := n.Request; p != nil {
		s.awaitFormer()
		reply := news{Answer: &parcel{ID: p.ID, Text: s.m.cfg.OnRequest(s.desc.Node, p.Text)}}
		if err := s.checkSize(reply); err != nil {
			return err
		}
		s.queueNews(reply)
	}
	return nil
}

// answerNothing is the OnRequest of a Mesh that has none.
func answerNothing(fabric.NodeID, []byte) []byte { return json.RawMessage("null") }

package wire

import (
	"fmt"
	"time"
)

// queueMessage queues a message and sends what can be sent.
func (l *Link) queueMessage(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendMessage(m)
	l.transmitQueued(time.Now())
}

// queued is a message that waits to be sent. What waits is bounded, also when the peer
// takes nothing: ends by maxGets and maxPuts, credits that go back by the number of flows, and
// messages of this node by the credits that it has.
type queued struct {
	b    []byte
	flow *inflow // of a Return
}

// appendMessage belongs to the holder of mu.
func (l *Link) appendMessage(m *message) {
	l.appendQueued(m.kind, queued{b: m.append(nil)})
}

// appendQueued belongs to the holder of mu.
func (l *Link) appendQueued(k kind, q queued) {
	if a := &l.lanes[channelOf[k]]; !l.closing {
		a.queue = append(a.queue, q)
	}
}

// popMessage takes the first message of a channel. It belongs to the holder of mu.
func (l *Link) popMessage(a *lane) []byte {
	m := a.queue[0]
	a.queue[0] = queued{}
	a.queue = a.queue[1:]
	switch kind(m.b[0]) {
	case kindGetEnd:
		l.credits.freed[channelOf[kindGet]]++
	case kindPutEnd:
		l.owed--
	case kindReturn:
		m.flow.pending = nil
	}
	return m.b
}

// notePut notes a PUT of the peer; an error if that has more on their way than it may. What it
// asked for counts until its end is sent, so that it cannot have ends queue up by asking for
// what is refused.
func (l *Link) notePut(m *message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed >= maxPuts {
		return fmt.Errorf("PUT %d while %d are under way", m.number, l.owed)
	}
	l.owed++
	return nil
}

// transmitQueued sends what can be sent. It belongs to the holder of mu.
func (l *Link) transmitQueued(now time.Time) {
	if l.closing {
		return
	}
	for {
		for !l.arq.replayFull() {
			m := l.nextMessage()
			if m == nil {
				break
			}
			l.arq.pushMessage(m, now)
		}
		p, again, ok := l.arq.nextPacket(&l.sent)
		if !ok {
			break
		}
		l.count.Packets.Add(1)
		if again {
			l.count.Retransmitted.Add(1)
		}
		l.ackAt = time.Time{}
		p.limits = l.credits.ownLimits()
		l.packet = appendPacket(l.packet[:0], p)
		l.count.TxBytes.Add(uint64(len(l.packet)))
		if err := l.medium.Send(l.packet); err != nil {
			return // the reader finds out, too
		}
	}
	l.setTimer(now)
}

// nextMessage is the next message to send, of the channels in turn: of those that have a message
// and a credit. It belongs to the holder of mu.
func (l *Link) nextMessage() []byte {
	for range channels {
		ch := l.turn
		l.turn = (ch + 1) % channels
		if !l.credits.hasCredit(ch) {
			continue
		}
		if m := l.nextOfLane(&l.lanes[ch]); m != nil {
			l.credits.sent[ch]++
			return m
		}
	}
	l.turn = response
	return nil
}

// nextOfLane is the next message of a channel. It belongs to the holder of mu.
func (l *Link) nextOfLane(a *lane) []byte {
	for len(a.queue) == 0 && len(a.streams) > 0 {
		s := a.streams[0]
		a.streams = a.streams[1:]
		if s.off < len(s.data) {
			l.scratch = s.appendFragment(l.scratch[:0])
			a.streams = append(a.streams, s)
			return l.scratch
		}
		if s.ended != nil { // it may queue the end
			s.ended()
		}
	}
	if len(a.queue) == 0 {
		return nil
	}
	return l.popMessage(a)
}

// isStarved reports whether messages wait for credits that the peer owes: it has acknowledged
// everything, and nothing of this node keeps a buffer of it. It belongs to the holder of mu.
func (l *Link) isStarved() bool {
	for ch := range channels {
		if a := &l.lanes[ch]; !l.arq.hasOutstanding() && !a.empty() && !l.credits.hasCredit(ch) &&
			(ch != nonPosted || len(a.queue) == l.gets.inUse()) {
			return true
		}
	}
	return false
}

// setTimer sets the timer. It belongs to the holder of mu.
func (l *Link) setTimer(now time.Time) {
	if l.closing {
		return
	}
	at := l.lastIn.Add(l.cfg.DownAfter / 4)
	if at.Before(now) || !l.isAwaiting() {
		at = now.Add(l.cfg.DownAfter / 4)
	}
	for _, t := range []time.Time{l.arq.timer, l.ackAt} {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	l.timer.Reset(max(at.Sub(now), 50*time.Microsecond))
}

// isAwaiting reports whether the peer owes something.
func (l *Link) isAwaiting() bool {
	if l.gets.inUse()+l.putting.inUse() > 0 {
		return true
	}
	for _, f := range l.outs {
		if f.hasUnconsumed() {
			return true
		}
	}
	return false
}

// timerFired is the timer's.
func (l *Link) timerFired() {
	now := time.Now()
	l.mu.Lock()
	if l.isStarved() {
		l.mu.Unlock()
		_ = l.failLink(fmt.Errorf("%w: it gives no credits", errBreach)) // as below
		return
	}
	back, down := l.arq.retryOldest(now, l.cfg.DownAfter)
	if down {
		l.mu.Unlock()
		_ = l.failLink(errSilent) // the reader ends the link, whatever Close says
		return
	}
	defer l.mu.Unlock()
	if back {
		l.count.Replays.Add(1)
		l.count.Timeouts.Add(1)
	}
	if !l.ackAt.IsZero() && !now.Before(l.ackAt) {
		l.arq.ackReceived()
	}
	if !l.arq.hasOutstanding() && l.isAwaiting() && now.Sub(l.lastIn) >= l.cfg.DownAfter/4 {
		l.count.Probes.Add(1)
		l.appendMessage(&message{kind: kindProbe})
	}
	l.transmitQueued(now)
}

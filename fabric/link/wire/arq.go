package wire

import "time"

// Window is how many packets of a direction are in the replay buffer at most.
const Window = 128

const (
	minRTO = 2 * time.Millisecond
	maxRTO = 64 * time.Millisecond
)

// arq is the go-back-N protocol of one side: what it sends and what it receives.
// It has no clock and no medium of its own, so that every case can be tested. The receiver takes
// every packet in order: push only messages for which it has a buffer.
//
// Concurrency: its owner's.
type arq struct {
	// Sending. Packets base to next-1 are in the replay buffer, packets resend to
	// next-1 of them are to be sent (again).
	base, next, resend uint32
	replay             [Window][]byte
	heard              time.Time // when base last moved, or the buffer was empty; and how late ticks were since
	rto                time.Duration
	timer              time.Time // when to go back by itself; zero: nothing outstanding
	trip               trip

	// Receiving.
	expect uint32 // sequence number of the next packet
	unsaid uint32 // packets received and not acknowledged
	room   uint16 // packets of a channel that may come unacknowledged, at least 1
	nacked bool   // the sender was asked to go back to expect
	speak  bool   // an acknowledgement is due now
	refuse bool   // and it is a NACK
}

// trip estimates the round trip as TCP does (RFC 6298), from packets that were
// sent once: of others nobody knows which one was acknowledged (Karn). One is timed
// at a time, from when it came into the replay buffer.
type trip struct {
	mean, deviation time.Duration
	timed           bool
	seq             uint32
	at              time.Time
}

// timeout is how long an acknowledgement may take.
func (t *trip) timeout() time.Duration { return t.mean + 4*t.deviation }

func (t *trip) beginSample(seq uint32, now time.Time) {
	if !t.timed {
		t.timed, t.seq, t.at = true, seq, now
	}
}

// noteAcknowledged is called when all packets before ack are acknowledged. It reports whether
// there is a new estimate.
func (t *trip) noteAcknowledged(ack uint32, now time.Time) bool {
	if !t.timed || int32(ack-t.seq) <= 0 {
		return false
	}
	t.timed = false
	d := now.Sub(t.at)
	if t.mean == 0 {
		t.mean, t.deviation = d, d/2
		return true
	}
	t.deviation += ((t.mean - d).Abs() - t.deviation) / 4
	t.mean += (d - t.mean) / 8
	return true
}

func (a *arq) init(room uint16) {
	a.rto, a.room = minRTO, room
}

// replayFull reports whether the replay buffer takes no further message.
func (a *arq) replayFull() bool { return a.next-a.base >= Window }

// hasOutstanding reports whether packets are not acknowledged.
func (a *arq) hasOutstanding() bool { return a.next != a.base }

// pushMessage puts a message into the replay buffer, which keeps a copy.
func (a *arq) pushMessage(m []byte, now time.Time) {
	if !a.hasOutstanding() {
		a.heard, a.timer = now, now.Add(a.rto)
	}
	a.trip.beginSample(a.next, now)
	i := a.next % Window
	a.replay[i] = append(a.replay[i][:0], m...)
	a.next++
}

// nextPacket returns the next packet to send, without limits. again: it was sent before.
func (a *arq) nextPacket(sent *uint32) (p packet, again, ok bool) {
	switch {
	case a.resend != a.next:
		p = packet{flags: flagData, seq: a.resend, message: a.replay[a.resend%Window]}
		a.resend++
		again = int32(*sent-a.resend) >= 0
		if !again {
			*sent = a.resend
		}
	case a.speak:
	default:
		return p, false, false
	}
	if a.refuse {
		p.flags |= flagNack
	}
	p.ack = a.expect
	a.speak, a.refuse, a.unsaid = false, false, 0
	return p, again, true
}

// receivePacket takes a packet of the peer, and returns the message if it is the next
// one. back: the peer has asked to go back.
func (a *arq) receivePacket(p packet, now time.Time) (m []byte, back, ok bool) {
	if n := p.ack - a.base; n <= a.next-a.base { // not older than base, not beyond next
		if n > 0 {
			a.base, a.heard = p.ack, now
			if a.trip.noteAcknowledged(p.ack, now) { // else what tick has made of it remains
				a.rto = min(max(a.trip.timeout(), minRTO), maxRTO)
			}
			if int32(a.resend-a.base) < 0 {
				a.resend = a.base
			}
			a.timer = time.Time{}
			if a.hasOutstanding() {
				a.timer = now.Add(a.rto)
			}
		}
		if p.flags&flagNack != 0 && a.hasOutstanding() {
			a.goBack()
			back = true
			a.timer = now.Add(a.rto)
		}
	}
	if p.flags&flagData == 0 {
		return nil, back, false
	}
	switch d := int32(p.seq - a.expect); {
	case d == 0:
		a.expect++
		a.nacked = false
		// Without anything to send, a quarter of the room is acknowledged at a time.
		if a.unsaid++; a.unsaid > uint32(a.room)/4 {
			a.speak = true
		}
		return p.message, back, true
	case d > 0: // packets before it are missing
		if !a.nacked {
			a.nacked, a.refuse, a.speak = true, true, true
		}
	default: // a repetition: its acknowledgement was lost
		a.speak = true
	}
	return nil, back, false
}

// goBack has everything outstanding sent again.
func (a *arq) goBack() { a.resend, a.trip.timed = a.base, false }

// noteDamaged records that something came that was no packet.
func (a *arq) noteDamaged() {
	if !a.nacked {
		a.nacked, a.refuse, a.speak = true, true, true
	}
}

// ackReceived has what was received acknowledged, when there is nothing more to receive.
func (a *arq) ackReceived() {
	if a.unsaid > 0 {
		a.speak = true
	}
}

// retryOldest goes back to the oldest packet when nothing was heard for long. down: nothing
// was heard for so long that the link is given up.
func (a *arq) retryOldest(now time.Time, downAfter time.Duration) (back, down bool) {
	if !a.hasOutstanding() || now.Before(a.timer) {
		return false, false
	}
	// While this side had no CPU nobody could be heard.
	a.heard = a.heard.Add(now.Sub(a.timer))
	if now.Sub(a.heard) >= downAfter {
		return false, true
	}
	a.rto = min(2*a.rto, maxRTO)
	a.goBack()
	a.nacked = false // let a NACK of ours be repeated
	a.timer = now.Add(a.rto)
	if d := a.heard.Add(downAfter); d.Before(a.timer) {
		a.timer = d
	}
	return true, false
}

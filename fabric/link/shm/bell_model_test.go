package shm

import (
	"testing"

	"exnet/internal/explore"
	"exnet/internal/racetest"
)

// bellModel is the protocol of the bell between a peer that sends, the driver that
// serves the link, and a consumer that arms it (active.Arm). Every look at a shared
// word, and every change of one, is a step; the test goes through all orders of
// steps. The comments name the code.
type bellModel struct {
	// Shared words.
	sent  int8 // messages in the ring
	seen  int8 // of these, pumped
	near  int8 // the armed word: number of the ring that is wanted, or 0
	bell  bool // a byte is in the socket
	rung  int8 // number of the last ring, the peer's
	seq   int8 // armSeq
	armed bool
	awake bool

	peer    [2]sender
	driver  driver
	consume consumer
}

type sender struct {
	at, left, number int8
}

type driver struct {
	at    int8
	rung  bool
	armed bool // what disarm saw
}

type consumer struct{ at, left int8 }

// broken are mistakes that the model must find.
type broken int8

const (
	right broken = iota
	lookFirst
	disarmFirst
	disarmOnlyAsleep
)

// stepPeer is outflow.Commit and ringBell.
func (m *bellModel) stepPeer(i int) bool {
	p := &m.peer[i]
	switch p.at {
	case 0:
		if p.left == 0 {
			return false
		}
		p.left--
		m.sent++
		p.at = 1
	case 1:
		if p.number = m.near; p.number == 0 || p.number == m.rung {
			p.at = 0
		} else {
			p.at = 2
		}
	case 2:
		old := m.rung
		m.rung = p.number
		if p.at = 3; old == p.number {
			p.at = 0
		}
	case 3:
		m.bell = true
		p.at = 0
	}
	return true
}

// stepDriver is Serve, Arm and a wait. Serve is also called with a bell that the
// driver found without waiting (txloop's look), and after Doze.
func (m *bellModel) stepDriver(b broken, look bool) bool {
	d := &m.driver
	switch d.at {
	case 0: // Serve: answerBell
		d.at = 1
		if look {
			d.rung = d.rung || m.bell
		}
		if d.rung && b != disarmFirst {
			m.bell = false
		}
	case 1: // disarm, or not
		if d.at = 5; (d.rung && b != disarmOnlyAsleep) || !m.awake {
			d.at = 2
		}
	case 2:
		m.awake = true
		d.at = 3
	case 3:
		d.armed = m.armed
		if d.at = 5; d.armed {
			m.near = 0
			d.at = 4
		}
	case 4:
		m.armed = false
		d.at = 5
	case 5:
		if d.rung && b == disarmFirst {
			m.bell = false
		}
		d.rung = false
		d.at = 6
	case 6: // idle, pump
		if d.at = 7; m.seen != m.sent {
			m.seen = m.sent
			d.at = 0
		}
	case 7: // Arm
		m.awake = false
		if d.at = 8; b == lookFirst {
			d.at = 11
		}
	case 8:
		if d.at = 10; !m.armed {
			m.armed = true
			d.at = 9
		}
	case 9:
		m.seq++
		m.near = m.seq
		d.at = 10
	case 10:
		if d.at = 20; m.seen != m.sent && b != lookFirst {
			d.at = 0
		}
	case 11: // lookFirst
		if d.at = 8; m.seen != m.sent {
			d.at = 0
		}
	case 20: // wait
		if !m.bell {
			return false
		}
		d.rung, d.at = true, 0
	}
	return true
}

// stepConsumer is active.Arm.
func (m *bellModel) stepConsumer() bool {
	c := &m.consume
	switch c.at {
	case 0:
		if c.left == 0 {
			return false
		}
		c.left--
		if c.at = 1; m.awake {
			c.at = 0
		}
	case 1:
		if c.at = 0; !m.armed {
			m.armed = true
			c.at = 2
		}
	case 2:
		m.seq++
		m.near = m.seq
		c.at = 3
	case 3:
		m.seen = m.sent // nothing, or pump
		c.at = 0
	}
	return true
}

// exploreBell finds a state in which all wait and a message was not seen.
func exploreBell(b broken) explore.Result[bellModel] {
	start := bellModel{consume: consumer{left: 1}}
	start.peer[0].left, start.peer[1].left = 2, 1
	return explore.All(func(m bellModel) (after []bellModel, wrong string) {
		for actor := range 6 {
			next := m
			var ok bool
			switch actor {
			case 0, 1:
				ok = next.stepPeer(actor)
			case 2:
				ok = next.stepDriver(b, false)
			case 3:
				if m.driver.at != 0 {
					continue
				}
				ok = next.stepDriver(b, true)
			case 4:
				ok = next.stepConsumer()
			case 5:
				if m.driver.at != 0 || !m.awake {
					continue
				}
				next.awake, ok = false, true // Doze
			}
			if ok {
				after = append(after, next)
			}
		}
		if len(after) == 0 && m.seen != m.sent {
			wrong = "a message is left behind"
		}
		return after, wrong
	}, start)
}

// No order of steps leaves a message behind while the driver waits; and orders are
// found that do, when a step is out of its place.
func TestBellModel(t *testing.T) {
	racetest.SkipModel(t)
	r := exploreBell(right)
	if r.Wrong != "" {
		t.Error(r)
	}
	t.Logf("%d states", r.States)
	for _, b := range []broken{lookFirst, disarmFirst, disarmOnlyAsleep} {
		if exploreBell(b).Wrong == "" {
			t.Errorf("mistake %d is not found", b)
		}
	}
}

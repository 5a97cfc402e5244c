package datagram

import (
	"fmt"
	"testing"

	"exnet/internal/explore"
)

// A model of SPEC 10.3: one sender, one receiver, the kernel between them. Each step is one access
// to what the two share, and all interleavings are tried. A store without a fence behind it may
// become visible after the loads that follow it. The receiver has everything sent by the kernel
// while it is armed, or it is rung: it knows the records that say what they come after. At every
// step the sender may be killed, and another socket may take it over (SO_REUSEPORT, connect): the
// kernel gives that one what comes from then on, and the sender ends the flow once it has asked
// the kernel.

// flowFault is what the model does otherwise than SPEC 10.3 says.
type flowFault int

const (
	faultNone          flowFault = iota
	faultSenderFence             // no fence between busy and the look at armed
	faultReceiverFence           // no fence between armed and the look at busy
	faultBusy                    // the receiver does not wait until busy is 0
	faultLook                    // the receiver does not look into the ring before it sleeps
	faultSettled                 // the sender does not ask whether it is settled
	faultKernelFirst             // the receiver looks at the kernel's queue before the ring
	faultDry                     // by_kernel is read after the receive that found nothing
	faultTaken                   // armed is cleared, and taken counted, before the receive
	faultSoftirq                 // the kernel defers datagrams, for 1 ms at most

	// Of a receiver that is rung.
	faultAfter   // it takes a record without having what went by the kernel before it
	faultRearm   // it sleeps after a datagram of the kernel's without arming anew
	faultGiveUp  // it takes what it has not got for lost at once, while the kernel may defer
	faultForever // it never takes what it has not got for lost
	faultAgain   // the sender rings while the ring holds what the receiver may not take yet
	faultUnrung  // the sender never rings
	faultShared  // its address may be shared: another socket gets the bell
)

const (
	flowDatagrams = 4 // that the sender sends
	flowQueue     = 2 // the kernel's queue has room for, if the receiver is not rung; else 1
	none          = -1
)

// fifo has numbers of datagrams, in order, and of records how many by the kernel they come after.
type fifo struct {
	of, after [flowDatagrams]int8
	n         int8
}

func (f *fifo) push(x int8) { f.of[f.n] = x; f.n++ }

func (f *fifo) pop() int8 {
	x := f.of[0]
	copy(f.of[:], f.of[1:])
	copy(f.after[:], f.after[1:])
	f.n--
	f.of[f.n], f.after[f.n] = 0, 0
	return x
}

// flowState is all that there is, comparable. Words that a side has stored and that are not visible
// yet are in late: none, or the value.
type flowState struct {
	rung bool // how the receiver is armed

	// shared
	busy, busyLate, armed, armedLate int8
	byKernel, taken, dry             int8
	ring, flight, queue              fifo // flight: what the softirq has

	// the sender
	sAt, sDry, next, lost int8 // lost: none, or how many by the kernel
	base                  int8 // lost, as it was first known
	sArmed                bool

	// the receiver
	rAt, read, hold int8
	rLost           int8 // of those by the kernel
	rSaw            bool // there was a record that is not due
	awake           bool

	// what the program saw
	expect        int8
	got, overflow uint8 // sets of datagrams

	moved bool  // another socket has the sender,
	other uint8 // and has got these
	left  bool  // the sender has ended the flow for that
	dead  bool  // the sender was killed
}

func (s *flowState) deliver(x int8) error {
	if x < s.expect {
		return fmt.Errorf("%d comes after %d", x, s.expect-1)
	}
	s.expect = x + 1
	s.got |= 1 << x
	return nil
}

// arrive has the softirq put a datagram into the receiver's queue, if there is room.
func (s *flowState) arrive() {
	room := int8(flowQueue)
	if s.rung {
		room = 1 // and one may be lost though there is room
	}
	switch x := s.flight.pop(); {
	case s.moved:
		s.other |= 1 << x
	case s.queue.n < room:
		s.queue.push(x)
	default:
		s.overflow |= 1 << x
	}
}

// sent is the set of the datagrams that the sender has sent.
func (s *flowState) sent() uint8 {
	n := s.next
	if s.sAt == sCount {
		n++
	}
	return 1<<n - 1
}

// Steps of the sender.
const (
	sBusy = iota
	sArmed
	sTaken
	sDryLook
	sDryTaken
	sPublish
	sKernel
	sSend
	sCount
)

// sender makes its next step, if it has one; again: another one that it may make.
func (s flowState) sender(f flowFault) (next, again flowState, ok bool) {
	if s.next == flowDatagrams || s.dead {
		return s, s, false
	}
	again = s
	switch s.sAt {
	case sBusy:
		if s.moved { // it asks the kernel now and then
			again.left, again.sAt = true, sKernel
		}
		if s.left {
			return again, again, true
		}
		if f == faultSenderFence {
			s.busyLate = 1
		} else {
			s.busy = 1
		}
		s.sAt = sArmed
	case sArmed:
		s.sAt, s.sArmed = sTaken, s.armed != 0
		if s.sArmed && !s.rung {
			s.sAt = sKernel
		} else if f == faultSettled || f == faultUnrung {
			s.sAt = sPublish
		}
	case sTaken:
		s.sAt = sDryLook
		if s.lost != none && (s.taken+s.lost == s.byKernel || s.rung && s.taken+s.lost > s.byKernel) {
			s.settled(f)
		}
	case sDryLook:
		s.sDry, s.sAt = s.dry, sDryTaken
	case sDryTaken:
		s.sAt = sKernel
		switch late := s.flight.n == 0; { // 1 ms has passed
		case s.sDry == s.byKernel && late:
			if s.lost == none {
				s.base = s.byKernel - s.taken
			}
			s.lost = s.byKernel - s.taken
			s.settled(f)
		case s.lost == none: // perhaps nothing is on its way
		case s.rung && s.sArmed && s.sDry == s.byKernel:
			s.settled(f)
		case s.rung:
			s.sAt = sPublish
			if s.sArmed && late {
				again = s
				again.settled(f)
			}
		}
	case sPublish:
		if s.busyLate != none { // stores do not overtake each other
			s.busy, s.busyLate = s.busyLate, none
			break
		}
		s.ring.after[s.ring.n] = s.byKernel - s.base
		s.ring.push(s.next)
		s.next++
		s.busy, s.sAt, s.sArmed, s.sDry = 0, sBusy, false, 0
	case sKernel:
		s.busy, s.busyLate, s.sAt = 0, none, sSend
	case sSend:
		s.flight.push(s.next)
		// The softirq runs before send returns.
		if f != faultSoftirq && (!s.rung || s.lost == none) {
			s.arrive()
		}
		s.sAt = sCount
	case sCount:
		s.byKernel++
		s.next++
		s.sAt, s.sArmed, s.sDry = sBusy, false, 0
	}
	return s, again, true
}

// settled: the sender knows that nothing is on its way by the kernel. It rings if that can have no
// datagram by the kernel taken for one before it, which was lost.
func (s *flowState) settled(f flowFault) {
	s.sAt = sPublish
	if s.sArmed && (!s.rung || s.ring.n == 0 || s.ring.after[s.ring.n-1] <= s.taken || f == faultAgain) {
		s.sAt = sKernel
	}
}

// due reports whether the receiver may take the first record of the ring.
func (s *flowState) due(f flowFault) bool {
	return s.ring.n > 0 && (!s.rung || f == faultAfter || s.ring.after[0] <= s.taken+s.rLost)
}

// Steps of the receiver.
const (
	rTop = iota
	rRead
	rReceive
	rDry
	rTake
	rArm
	rIdle
	rLook
	rSleep
	rWake
	rWakeTaken
	rWakeTop
)

// receiver makes its next steps: several, where the program chooses.
func (s flowState) receiver(f flowFault) (next []flowState, err error) {
	was := s
	one := func() { next = append(next, s); s = was }
	switch s.rAt {
	case rTop:
		switch {
		case s.due(f) && !(f == faultKernelFirst && s.queue.n > 0):
			err = s.deliver(s.ring.pop())
			one()
		case f == faultForever && s.ring.n > 0 && s.queue.n == 0 && s.flight.n == 0:
			// It looks for ever.
		case s.rung && s.ring.n > 0:
			s.rAt, s.rSaw = rRead, true
			one()
		case !s.awake:
			s.rAt = rSleep
			one()
		default:
			s.rAt = rRead
			one()
			s.rAt = rArm
			one()
		}
	case rRead:
		s.read, s.rAt = s.byKernel, rReceive
		one()
	case rReceive:
		s.rAt = rDry
		if s.queue.n > 0 {
			s.hold, s.rAt = s.queue.pop(), rTake
			s.rSaw = false
		} else if s.flight.n > 0 && f != faultGiveUp { // 1 ms has not passed
			s.rSaw = false
		}
		one()
	case rDry:
		if f == faultDry {
			s.read = s.byKernel
		}
		s.dry, s.rAt = s.read, rTop
		s.rLost = min(s.rLost, max(s.read-s.base-s.taken, 0))
		if s.rSaw && f != faultForever {
			s.rLost = s.ring.after[0] - s.taken
		}
		s.rSaw = false
		one()
	case rTake:
		s.taken++
		err = s.deliver(s.hold)
		s.hold, s.rAt = 0, rTop
		if s.rung && f != faultRearm {
			s.armed, s.awake = 0, true
		}
		one()
	case rArm:
		if f == faultReceiverFence {
			s.armedLate = 1
		} else {
			s.armed = 1
		}
		s.rAt = rIdle
		one()
	case rIdle:
		if s.busy != 0 && f != faultBusy {
			return nil, nil
		}
		s.rAt = rLook
		one()
	case rLook:
		s.awake, s.rAt = false, rTop
		if f == faultLook || s.ring.n == 0 {
			s.rAt = rSleep
		} else if s.rung {
			one()
			s.armed, s.awake, s.rAt = 0, true, rTop
		}
		one()
	case rSleep:
		if s.queue.n == 0 {
			return nil, nil
		}
		if f == faultTaken {
			s.rAt = rWakeTaken
			one()
			break
		}
		s.hold, s.rAt = s.queue.pop(), rWake
		one()
	case rWake:
		if s.armedLate != none { // stores do not overtake each other
			s.armed, s.armedLate = s.armedLate, none
			one()
			break
		}
		s.taken++
		err = s.deliver(s.hold)
		s.hold, s.armed, s.awake, s.rAt = 0, 0, true, rTop
		one()
	case rWakeTaken: // the datagram is still in the kernel's queue
		s.taken++
		s.armed, s.armedLate, s.awake, s.rAt = 0, none, true, rWakeTop
		one()
	case rWakeTop: // which looks into the ring first
		if s.ring.n > 0 {
			err = s.deliver(s.ring.pop())
		} else {
			err = s.deliver(s.queue.pop())
			s.rAt = rTop
		}
		one()
	}
	return next, err
}

// steps are all states that may follow.
func (s flowState) steps(f flowFault) (next []flowState, err error) {
	if n, again, ok := s.sender(f); ok {
		next = append(next, n)
		if again != s {
			next = append(next, again)
		}
	}
	more, err := s.receiver(f)
	next = append(next, more...)
	if s.flight.n > 0 {
		n := s
		n.arrive()
		next = append(next, n)
		if s.rung && s.overflow == 0 { // as if others had filled the queue
			n = s
			n.overflow |= 1 << n.flight.pop()
			next = append(next, n)
		}
	}
	if !s.moved && (!s.rung || f == faultShared) {
		n := s
		n.moved = true
		next = append(next, n)
	}
	if !s.dead && s.busy == 0 { // for one that is publishing the receiver waits 10 ms, and closes
		n := s
		n.dead = true
		next = append(next, n)
	}
	if s.busyLate != none {
		n := s
		n.busy, n.busyLate = n.busyLate, none
		next = append(next, n)
	}
	if s.armedLate != none {
		n := s
		n.armed, n.armedLate = n.armedLate, none
		next = append(next, n)
	}
	return next, err
}

// interleave tries all interleavings. A receiver that is rung may miss the bell if the kernel's
// queue was full.
func interleave(f flowFault, rung bool) explore.Result[flowState] {
	first := flowState{rung: rung, byKernel: 1, armed: 1, busyLate: none, armedLate: none, lost: none}
	return explore.All(func(s flowState) ([]flowState, string) {
		next, err := s.steps(f)
		if err != nil {
			return nil, err.Error()
		}
		if len(next) == 0 && (s.got|s.overflow|s.other)&s.sent() != s.sent() && !(s.rAt == rSleep && rung && s.overflow != 0) {
			return nil, "the receiver sleeps, and has not got all"
		}
		return next, ""
	}, first)
}

// No datagram is lost but by a full queue of the kernel's, none is overtaken, and no receiver
// sleeps on, whatever the order of the steps.
func TestInterleavings(t *testing.T) {
	for _, rung := range []bool{false, true} {
		r := interleave(faultNone, rung)
		if r.Wrong != "" || r.States < 1000 {
			t.Errorf("rung %v: %v", rung, r)
		}
		t.Logf("rung %v: %d states", rung, r.States)
	}
}

// Each fault is found. faultSoftirq is none of the library's: the kernel may defer a datagram to
// ksoftirqd, the receiver finds its queue empty before that, and one that follows through the
// segment overtakes it (SPEC 10.3).
func TestInterleavingsFaults(t *testing.T) {
	for f := faultSenderFence; f <= faultShared; f++ {
		for _, rung := range []bool{false, true} {
			if rung && (f == faultSettled || f == faultDry || f == faultSoftirq) || !rung && f > faultSoftirq {
				continue
			}
			if r := interleave(f, rung); r.Wrong == "" {
				t.Errorf("fault %d, rung %v, is not found in %d states", f, rung, r.States)
			} else {
				t.Logf("fault %d, rung %v: %s", f, rung, r.Wrong)
			}
		}
	}
}

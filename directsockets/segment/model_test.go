package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"exnet/internal/racetest"
)

// shadow is the TCP connection of a direction, as a model.
type shadow struct {
	bytes.Buffer
	wrote int
	ended bool
	limit int // bytes that Write takes before it fails once; 0: all
}

var errStalled = errors.New("shadow takes no more now")

func (s *shadow) Write(p []byte) (int, error) {
	n := len(p)
	if s.limit > 0 {
		n = min(n, s.limit)
	}
	s.Buffer.Write(p[:n])
	s.wrote += n
	if n < len(p) {
		return n, errStalled
	}
	return n, nil
}

// writer is what a connection does with TX.
type writer struct {
	e      *End
	shadow *shadow
	ended  bool // by shutdown
}

// write sends the beginning of p, and returns how much.
func (w *writer) write(p []byte) (int, error) {
	n, err := w.e.Send(p)
	switch err {
	case nil, ErrAgain:
		return n, nil
	case ErrFellBack:
		return 0, w.returning()
	case ErrNotPromoted, ErrDemoted:
		return w.shadow.Write(p)
	}
	return n, err
}

func (w *writer) returning() error {
	err := w.e.ReturnToTCP(w.shadow.Write)
	if err == errStalled {
		return nil // Send will say ErrFellBack again
	}
	return err
}

// end shuts the direction down. False: try again.
func (w *writer) end() (bool, error) {
	switch err := w.e.Shutdown(); err {
	case ErrAgain:
		return false, nil
	case nil, ErrDemoted, ErrNotPromoted:
		w.shadow.ended, w.ended = true, true
		return true, nil
	case ErrFellBack:
		return false, w.returning() // the shadow's end comes after it
	default:
		return false, err
	}
}

// leaveFault is what a model does otherwise than a connection.
type leaveFault uint8

const (
	leaveRight     leaveFault = iota
	leaveForgets              // after RETURNED the receiver never looks at the queue again
	leaveFromStart            // the rest is read from where the receiver stopped
	leaveNoPromote            // what came before PROMOTE counts as what the peer left
	leaveBelieves             // an end of file without RETURNED is believed
	leavePublishes            // the sender publishes after RETURNED
	leaveEarly                // what the peer left is added up before RETURNED
	leaveBoth                 // the rest is read although the shadow gave all
	leaveFaults
)

// reader is what a connection does with RX.
type reader struct {
	e          *End
	shadow     *shadow
	fault      leaveFault
	took       uint64 // bytes from the shadow
	got        bytes.Buffer
	buf        []byte
	fallenBack bool
	eof        bool

	returning, rest bool
	from, until     uint64
	rests           int // how often the rest was read
}

// read receives up to n bytes, and reports whether there was something.
func (r *reader) read(n int) (bool, error) {
	at, ok := r.e.PromotedAt()
	ended := r.shadow.Len() == 0 && r.shadow.ended
	switch {
	case r.rest:
		n, err := r.e.RecvRest(r.buf[:n])
		r.got.Write(r.buf[:n])
		if err == io.EOF {
			r.rest, r.eof, err = false, true, nil
		}
		return true, err
	case r.returning:
		if r.took < r.until && ended || r.fault == leaveBoth && ended {
			skip := r.took - r.from
			switch r.fault {
			case leaveFromStart, leaveBoth:
				skip = 0
			case leaveNoPromote:
				skip = min(r.took, r.until-r.from)
			}
			r.returning, r.rest = false, true
			r.rests++
			return true, r.e.Rest(skip, false)
		}
		return r.readShadow(n), nil
	case r.fallenBack && (r.e.PeerReturned() || r.fault == leaveEarly):
		r.fallenBack = false
		var err error
		r.from, r.until, err = r.e.Left()
		r.returning = r.fault != leaveForgets
		return true, err
	case r.fallenBack && r.e.Resume(ended && r.fault != leaveBelieves):
		r.fallenBack = false
		return true, nil
	case r.fallenBack:
		return r.readShadow(n), nil
	case ok && r.took < at, !ok:
		if ok {
			n = min(n, int(at-r.took))
		}
		return r.readShadow(n), nil
	}
	n, err := r.e.Recv(r.buf[:n])
	r.got.Write(r.buf[:n])
	switch err {
	case nil:
		return true, nil
	case ErrAgain:
		return false, nil
	case io.EOF:
		r.eof = true
		return true, nil
	case ErrDemoted, ErrClosed:
		return r.readShadow(len(r.buf)), nil
	}
	return false, err
}

func (r *reader) readShadow(n int) bool {
	n, _ = r.shadow.Read(r.buf[:min(n, len(r.buf))])
	r.took += uint64(n)
	r.got.Write(r.buf[:n])
	if n == 0 && r.shadow.ended && !(r.returning && r.took < r.until) {
		r.eof = true
	}
	return n > 0
}

// A direction between two ends, driven step by step from one goroutine, with
// everything that a connection can do at random places; what arrives is what was
// sent. The sender ends at any of them, too: it closes, or it is killed, and what it
// has been told was sent arrives all the same.
func TestModel(t *testing.T) {
	racetest.SkipModel(t)
	const rounds, short = 6000, 600
	var seen modelSeen
	for seed := range rounds {
		if testing.Short() && seed >= short && !slices.Contains(seen[:], 0) {
			break
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		if err := modelRound(t, rng, &seen, leaveRight); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("promoted %d, demoted %d, fallen back %d, resumed %d, returned to TCP %d, shut down in the segment %d, "+
		"killed %d, closed %d, in the middle of returning to TCP %d, rest read %d",
		seen[0], seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], seen[7], seen[8], seen[9])
	for i, n := range seen {
		if n == 0 {
			t.Error("never happened:", i)
		}
	}
}

// TestModelFindsFaults: the model finds every fault that is planted in it.
func TestModelFindsFaults(t *testing.T) {
	racetest.SkipModel(t)
	for fault := leaveRight + 1; fault < leaveFaults; fault++ {
		var found error
		seed := 0
		for ; found == nil && seed < 20000; seed++ {
			found = modelRound(t, rand.New(rand.NewPCG(uint64(seed), 1)), &modelSeen{}, fault)
		}
		if found == nil {
			t.Errorf("fault %d: not found", fault)
		}
		t.Logf("fault %d, seed %d: %.120v", fault, seed-1, found)
	}
}

// modelSeen is how often what TestModel lists has happened.
type modelSeen [10]int

func modelRound(t *testing.T, rng *rand.Rand, seen *modelSeen, fault leaveFault) error {
	c, s := looseEnds(t, Config{Slots: 16, Ring: minRing})
	defer c.Close(false)
	defer s.Close(false)
	defer c.seg.Retire()
	defer s.seg.Retire()
	c.Tune(Tuning{Threshold: 1 + rng.IntN(600), Chunk: 4096 << rng.IntN(3)})
	if err := s.Attach(); err != nil {
		return err
	}
	if rng.IntN(2) == 0 { // both variants of the barrier
		c.relation.Store(relationFence)
		s.relation.Store(relationFence)
	}
	var sh shadow
	tx, rx := &writer{e: c, shadow: &sh}, &reader{e: s, shadow: &sh, buf: make([]byte, 1<<16), fault: fault}
	data := pattern(rng.IntN(60000), rng.Uint64())
	rest := data
	steps := 60 + rng.IntN(200)
	at := func() int { // a step, or never
		if rng.IntN(3) == 0 {
			return -1
		}
		return rng.IntN(steps)
	}
	promote, demote, fallBack := rng.IntN(steps/2), at(), at()
	if rng.IntN(8) == 0 {
		fallBack = rng.IntN(promote + 1)
	}
	end := at() // the sender is killed, or closes
	slow := rng.IntN(2) == 0
	if fallBack >= 0 && rng.IntN(2) == 0 { // soon after the receiver has fallen back
		end = fallBack + rng.IntN(12)
	}
	dead, kill, heard := false, rng.IntN(2) == 0, 0
	idle := 0
	for step := 0; !rx.eof; step++ {
		if step >= max(end, fallBack) && end >= 0 && !dead && !tx.ended {
			dead, tx.ended, heard = true, true, step+rng.IntN(20)
			if c.tx.back.begun && c.tx.phase != phaseDemoted {
				seen[8]++
			}
			if kill {
				seen[6]++
			} else {
				seen[7]++
				if c.FallenBack() { // what the shadow takes now
					sh.limit = 1 + rng.IntN(5000)
					if err := tx.returning(); err != nil {
						return err
					}
				}
				if err := c.Close(false); err != nil {
					return err
				}
			}
			sh.ended = true
			data, rest = data[:len(data)-len(rest)], nil
		}
		if dead && step >= heard { // the doorbell
			s.gone.Store(true)
		}
		sh.limit = 0
		if rng.IntN(4) == 0 || slow && (rx.fallenBack || rx.returning) {
			sh.limit = 1 + rng.IntN(1000)
		}
		switch {
		case dead:
		case step == promote && !tx.ended:
			if err := c.Promote(uint64(sh.wrote)); err == nil {
				seen[0]++
			} else if err != ErrFellBack {
				return err
			}
		case step >= demote && demote >= 0 && c.tx.phase == phaseDirect && !tx.ended:
			switch err := c.Demote(); err {
			case nil:
				seen[1]++
			case ErrFellBack:
				if err := tx.returning(); err != nil {
					return err
				}
			case ErrAgain:
			default:
				return err
			}
		}
		if step == fallBack && !rx.fallenBack {
			switch err := s.FallBack(); err {
			case nil:
				rx.fallenBack = true
				seen[2]++
				if c.tx.phase == phaseDirect && !tx.ended && !dead && rng.IntN(2) == 0 {
					if err := crossing(c, s, tx, len(rest) > 0); err != nil {
						return err
					}
				}
			case ErrEnding:
			default:
				return err
			}
		}
		if fault == leavePublishes && c.tx.back.begun && c.tx.phase == phaseDirect && len(rest) > 0 {
			if slot, err := c.nextSlot(); err == nil {
				slot.Payload().Fill(rest[:1])
				c.publish(slot, TagVELOLast, 1)
				rest = rest[1:]
			}
		}
		was := rx.fallenBack
		for range rng.IntN(4) {
			if dead {
				break
			}
			if len(rest) > 0 {
				n, err := tx.write(rest[:min(len(rest), 1+rng.IntN(1<<rng.IntN(15)))])
				if err != nil && err != errStalled {
					return err
				}
				rest = rest[n:]
			} else if !tx.ended {
				if _, err := tx.end(); err != nil {
					return err
				}
			}
		}
		if !dead && c.FallenBack() && tx.ended && !sh.ended {
			return errors.New("ended")
		}
		for range rng.IntN(4) {
			if slow && step > promote && step < fallBack { // so that much is left then
				break
			}
			some, err := rx.read(1 + rng.IntN(1<<rng.IntN(16)))
			if err != nil {
				return err
			}
			if idle++; some {
				idle = 0
			}
		}
		if was && !rx.fallenBack && !rx.returning && rx.until == 0 {
			seen[3]++
		}
		if idle > 10000 {
			return fmt.Errorf("stuck: %d of %d bytes; sender %+v ended %v, receiver %+v fallen back %v, shadow %d %v; promote %d fall back %d demote %d; fallen back %v, back %+v, rest %d", rx.got.Len(), len(data), c.tx.phase, tx.ended, s.rx.phase, rx.fallenBack, sh.Len(), sh.ended, promote, fallBack, demote, c.FallenBack(), c.tx.back, len(rest))
		}
	}
	if c.tx.back.begun {
		seen[4]++
	}
	if s.rx.phase == phaseEnded {
		seen[5]++
	}
	seen[9] += rx.rests
	if !bytes.Equal(rx.got.Bytes(), data) {
		return fmt.Errorf("%d bytes came, %d were sent, or others", rx.got.Len(), len(data))
	}
	return nil
}

// crossing ends the direction as a sender does that has not seen FALLEN_BACK yet.
func crossing(c, s *End, tx *writer, demote bool) error {
	s.own.attention.Store(s.attention.Word() &^ fallenBackFlag)
	defer s.own.attention.Store(s.attention.Word())
	if demote {
		if err := c.Demote(); err != nil && err != ErrAgain {
			return err
		}
		return nil
	}
	_, err := tx.end()
	return err
}

// DEMOTE after each byte, FALLEN_BACK after each byte, of sends of all kinds.
func TestEveryPosition(t *testing.T) {
	data := pattern(1400, 7)
	sends := []int{1, 120, 121, 300, 600, 258} // through slots, and through the ring
	for pos := range len(data) + 1 {
		for _, fallBack := range []bool{false, true} {
			c, s := looseEnds(t, Config{Slots: 64, Ring: minRing})
			if err := s.Attach(); err != nil {
				t.Fatal(err)
			}
			var sh shadow
			tx, rx := &writer{e: c, shadow: &sh}, &reader{e: s, shadow: &sh, buf: make([]byte, 4096)}
			if err := c.Promote(0); err != nil {
				t.Fatal(err)
			}
			sent := 0
			send := func(until int) {
				for i := 0; sent < until; i++ {
					n, err := tx.write(data[sent:min(until, sent+sends[i%len(sends)])])
					if err != nil {
						t.Fatal(err)
					}
					sent += n
				}
			}
			if fallBack {
				send(len(data))
				for rx.got.Len() < pos {
					if _, err := rx.read(min(pos-rx.got.Len(), 1+pos%97)); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.FallBack(); err != nil {
					t.Fatal(err)
				}
				rx.fallenBack = true
				if err := c.ReturnToTCP(sh.Write); err != nil {
					t.Fatal(err)
				}
			} else {
				send(pos)
				if err := c.Demote(); err != nil {
					t.Fatal(err)
				}
				send(len(data))
			}
			if ok, err := tx.end(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			for !rx.eof {
				if _, err := rx.read(1000); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(rx.got.Bytes(), data) {
				t.Fatalf("position %d, fall back %v: %d bytes, or others", pos, fallBack, rx.got.Len())
			}
			if c.count[SentDemote].Load() == 1 == fallBack {
				t.Fatal("counter")
			}
			c.Close(false)
			s.Close(false)
			c.seg.Retire()
			s.seg.Retire()
		}
	}
}

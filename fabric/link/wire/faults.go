package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"exnet/fabric"
)

// ErrFaults says that a description of faults is wrong; its text says what.
var ErrFaults = errors.New("wire: invalid configuration")

// Faults is what happens to the packets of one direction of a medium. The zero value
// is a medium without faults. What happens to which packet depends on Seed and on
// the order of packets alone.
type Faults struct {
	Seed uint64

	// Probabilities of a packet, 0 to 1.
	Drop      float64
	Corrupt   float64 // one to three bits are flipped, or it is cut short
	Duplicate float64
	Reorder   float64 // it comes after the next one

	// Delay of every packet, and what is added to it at random at most, which
	// reorders packets, too.
	Delay, Jitter time.Duration
}

// None reports whether nothing happens to packets.
func (f Faults) None() bool {
	return f.Drop == 0 && f.Corrupt == 0 && f.Duplicate == 0 && f.Reorder == 0 && f.Delay == 0 && f.Jitter == 0
}

// Verify returns ErrFaults if a value cannot be.
func (f Faults) Verify() error {
	for _, p := range []struct {
		name  string
		value float64
	}{{"drop", f.Drop}, {"corrupt", f.Corrupt}, {"duplicate", f.Duplicate}, {"reorder", f.Reorder}} {
		if !(p.value >= 0 && p.value <= 1) {
			return fmt.Errorf("%w: %s=%v; use a probability from 0 to 1", ErrFaults, p.name, p.value)
		}
	}
	if f.Delay < 0 || f.Jitter < 0 || f.Delay > time.Minute || f.Jitter > time.Minute-f.Delay {
		return fmt.Errorf("%w: delay=%v, jitter=%v; use 0 to 1m", ErrFaults, f.Delay, f.Jitter)
	}
	return nil
}

// Between is f with a seed for the packets from a to b, made from that of f.
func (f Faults) Between(a, b fabric.NodeID) Faults {
	f.Seed = (f.Seed+1)*0x9e3779b97f4a7c15 ^ uint64(a)<<16 ^ uint64(b)
	return f
}

// ParseFaults reads a list as in "drop=0.01,corrupt=0.001,delay=1ms,seed=7". The names
// are those of the fields of Faults, in lower case. The error wraps ErrFaults if it is
// none.
func ParseFaults(s string) (f Faults, err error) {
	seen := make(map[string]bool)
	for _, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return Faults{}, fmt.Errorf("%w: %q: use name=value, such as drop=0.01", ErrFaults, part)
		}
		if seen[name] {
			return Faults{}, fmt.Errorf("%w: %s appears twice", ErrFaults, name)
		}
		seen[name] = true
		switch name {
		case "seed":
			f.Seed, err = strconv.ParseUint(value, 10, 64)
		case "drop":
			f.Drop, err = strconv.ParseFloat(value, 64)
		case "corrupt":
			f.Corrupt, err = strconv.ParseFloat(value, 64)
		case "duplicate":
			f.Duplicate, err = strconv.ParseFloat(value, 64)
		case "reorder":
			f.Reorder, err = strconv.ParseFloat(value, 64)
		case "delay":
			f.Delay, err = time.ParseDuration(value)
		case "jitter":
			f.Jitter, err = time.ParseDuration(value)
		default:
			return Faults{}, fmt.Errorf("%w: %q; use seed, drop, corrupt, duplicate, reorder, delay or jitter", ErrFaults, name)
		}
		if err != nil {
			return Faults{}, fmt.Errorf("%w: %s cannot be %q", ErrFaults, name, value)
		}
	}
	if err := f.Verify(); err != nil {
		return Faults{}, err
	}
	return f, nil
}

// String is what ParseFaults reads; empty without faults.
func (f Faults) String() string {
	var parts []string
	for _, p := range []struct {
		name  string
		value float64
	}{{"drop", f.Drop}, {"corrupt", f.Corrupt}, {"duplicate", f.Duplicate}, {"reorder", f.Reorder}} {
		if p.value != 0 {
			parts = append(parts, p.name+"="+strconv.FormatFloat(p.value, 'g', -1, 64))
		}
	}
	if f.Delay != 0 {
		parts = append(parts, "delay="+f.Delay.String())
	}
	if f.Jitter != 0 {
		parts = append(parts, "jitter="+f.Jitter.String())
	}
	if f.Seed != 0 {
		parts = append(parts, "seed="+strconv.FormatUint(f.Seed, 10))
	}
	return strings.Join(parts, ",")
}

// way is one direction of a medium, with its faults.
type way struct {
	out func(p []byte) error // takes a packet, and loses what does not fit; borrows it if borrows is set
	// borrows spares a packet that nothing happens to a copy.
	borrows bool

	mu      sync.Mutex
	faults  Faults
	rnd     *rand.Rand
	delayed []byte      // comes after the next packet
	late    []delayed   // in the order in which they are due
	timer   *time.Timer // of the first of them
	stopped bool
}

// delayed is a packet that is on its way.
type delayed struct {
	due time.Time
	b   []byte
}

func newWay(f Faults, out func(p []byte) error, borrows bool) (*way, error) {
	if err := f.Verify(); err != nil {
		return nil, err
	}
	w := &way{out: out, borrows: borrows, faults: f, rnd: rand.New(rand.NewPCG(f.Seed, 0x9e3779b97f4a7c15))}
	w.timer = time.AfterFunc(time.Hour, w.sendDue)
	w.timer.Stop()
	return w, nil
}

// send sends p, which it borrows, or not. An error is out's.
func (w *way) send(p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &w.faults
	if f.None() && w.delayed == nil {
		if !w.borrows {
			p = append([]byte(nil), p...)
		}
		return w.out(p)
	}
	// Always as many numbers a packet, so that one fault does not move another.
	drop, corrupt, duplicate, reorder := w.rnd.Float64(), w.rnd.Float64(), w.rnd.Float64(), w.rnd.Float64()
	damage, jitter := w.rnd.Uint64(), w.rnd.Float64()
	if drop < f.Drop {
		return nil
	}
	b := append([]byte(nil), p...)
	if corrupt < f.Corrupt {
		b = damagedCopy(b, damage)
	}
	delay := f.Delay + time.Duration(jitter*float64(f.Jitter))
	if reorder < f.Reorder && w.delayed == nil {
		w.delayed = b
		return nil
	}
	err := w.sendLater(delay, b)
	if duplicate < f.Duplicate {
		err = w.sendLater(delay, b)
	}
	if w.delayed != nil {
		err = w.sendLater(delay, w.delayed)
		w.delayed = nil
	}
	return err
}

// damagedCopy flips one to three bits of b, or cuts it.
func damagedCopy(b []byte, r uint64) []byte {
	if r%8 == 0 {
		return b[:r>>8%uint64(len(b))]
	}
	for range 1 + r%3 {
		r = r*6364136223846793005 + 1442695040888963407
		bit := r >> 20 % uint64(8*len(b))
		b[bit/8] ^= 1 << (bit % 8)
	}
	return b
}

// sendLater sends b after some time. It belongs to the holder of mu.
func (w *way) sendLater(d time.Duration, b []byte) error {
	if d <= 0 {
		return w.out(b)
	}
	if w.stopped {
		return nil
	}
	// Packets that are due together keep their order.
	due := time.Now().Add(d)
	i := len(w.late)
	for i > 0 && w.late[i-1].due.After(due) {
		i--
	}
	w.late = slices.Insert(w.late, i, delayed{due, b})
	if i == 0 {
		w.timer.Reset(d)
	}
	return nil
}

// sendDue is the timer's: it sends what is due.
func (w *way) sendDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, n := time.Now(), 0
	for n < len(w.late) && !w.late[n].due.After(now) {
		_ = w.out(w.late[n].b) // the next packet's sender finds out, too
		n++
	}
	w.late = slices.Delete(w.late, 0, n)
	if len(w.late) > 0 {
		w.timer.Reset(w.late[0].due.Sub(now))
	}
}

// setFaults changes the faults.
func (w *way) setFaults(f Faults) error {
	if err := f.Verify(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = f
	return nil
}

func (w *way) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
	w.late = nil
}

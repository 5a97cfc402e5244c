package spill

import "time"

// Policy says when to borrow more, and when to give back.
type Policy struct {
	// Percent of what there is that is in use when more is borrowed.
	Percent int64
	// Faults within Time, of pages that came from elsewhere, have more borrowed while more than Low
	// is in use.
	Faults uint64
	Time   time.Duration
	// Low is the percentage of what would be left that is in use at most when a lease is given
	// back, and Calm how long it has to be so.
	Low  int64
	Calm time.Duration
}

// DefaultPolicy has the threshold and the faults that the thesis names as examples (Young, 3.5.1);
// the times and Low are ours.
func DefaultPolicy() Policy {
	return Policy{Percent: 80, Faults: 100, Time: time.Second, Low: 50, Calm: 10 * time.Second}
}

// Load is what is needed and what there is, in bytes.
type Load struct {
	Used     int64  // here and at lenders
	Room     int64  // the share of this host, and all leases
	Smallest int64  // the lease that could be given back; 0: none
	Faults   uint64 // so far
}

// Decision is what to do.
type Decision int

// The values of Decision.
const (
	Stay    Decision = iota
	Spill            // borrow more
	Release          // give the smallest lease back
)

// sample is how many faults there had been at a time.
type sample struct {
	at     time.Time
	faults uint64
}

// Watch applies a Policy. The zero Watch has none: set Policy.
type Watch struct {
	Policy
	samples []sample // of the last Time, and the last one before
	low     time.Time
}

// Look returns what to do at a time, which does not go back.
func (w *Watch) Look(now time.Time, l Load) Decision {
	w.samples = append(w.samples, sample{now, l.Faults})
	for len(w.samples) > 1 && !w.samples[1].at.After(now.Add(-w.Time)) {
		w.samples = w.samples[1:]
	}
	if l.Used*100 >= l.Room*w.Percent || l.Used*100 > l.Room*w.Low && l.Faults-w.samples[0].faults >= w.Faults {
		w.low = time.Time{}
		w.samples = append(w.samples[:0], sample{now, l.Faults}) // they are answered
		return Spill
	}
	if l.Smallest == 0 || l.Used*100 > (l.Room-l.Smallest)*w.Low {
		w.low = time.Time{}
		return Stay
	}
	if w.low.IsZero() {
		w.low = now
	}
	if now.Sub(w.low) < w.Calm {
		return Stay
	}
	w.low = time.Time{}
	return Release
}

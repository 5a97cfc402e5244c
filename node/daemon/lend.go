package daemon

import (
	"fmt"
	"time"

	"exnet/node/control"
)

// Lend says how much memory the node lends to the programs of others, and to whom.
type Lend struct {
	control.LendLimits
	// Time is how long a lease lasts at most. Default: as long as its borrower lives.
	Time time.Duration
}

const (
	// MaxLend is the largest limit of what is lent, in bytes.
	MaxLend = 1 << 50
	// lendUnit divides what is lent: a page of every machine that this runs on.
	lendUnit = 4096
)

// check returns an error if settings contradict each other.
func (l Lend) check() error {
	if err := checkLend(l.LendLimits); err != nil {
		return err
	}
	if l.Lend == 0 && (l.PerNode != 0 || l.PerUser != 0 || l.Time != 0) {
		return fmt.Errorf("%w: limits of what is lent, and nothing is: say how much with lend", ErrConfig)
	}
	if l.Time < 0 {
		return fmt.Errorf("%w: leases of %v: use a time that is not negative", ErrConfig, l.Time)
	}
	return nil
}

// checkLend returns an error if a limit is none.
func checkLend(l control.LendLimits) error {
	for _, n := range []struct {
		what string
		n    int64
	}{{"lend", l.Lend}, {"lend to a node", l.PerNode}, {"lend to a user", l.PerUser}} {
		if n.n < 0 || n.n > MaxLend || n.n%lendUnit != 0 {
			return fmt.Errorf("%w: %s %d bytes: use a multiple of %d, up to %d", ErrConfig, n.what, n.n, lendUnit, int64(MaxLend))
		}
	}
	return nil
}

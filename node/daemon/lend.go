package daemon

import (
	"fmt"
	"time"

	"exnet/memory/pool"
	"exnet/memory/wire"
)

// Lend says how much memory the node lends to the programs of others, and to whom.
type Lend struct {
	pool.Limits
	// Time is how long a lease lasts at most. Default: as long as its borrower lives.
	Time time.Duration
}

// MaxLend is the largest limit of what is lent, in bytes.
const MaxLend = 1 << 50

// check returns an error if settings contradict each other.
func (l Lend) check() error {
	_, err := lendLimits(l.Limits)
	if err != nil {
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

// lendLimits checks limits.
func lendLimits(l pool.Limits) (pool.Limits, error) {
	for _, n := range []struct {
		what string
		n    int64
	}{{"lend", l.Lend}, {"lend to a node", l.PerNode}, {"lend to a user", l.PerUser}} {
		if n.n < 0 || n.n > MaxLend || n.n%wire.PageSize != 0 {
			return l, fmt.Errorf("%w: %s %d bytes: use a multiple of %d, up to %d", ErrConfig, n.what, n.n, wire.PageSize, int64(MaxLend))
		}
	}
	return l, nil
}

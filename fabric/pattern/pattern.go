package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"exnet/fabric/pattern/pfprof"
)

// ErrInvalid says that a pattern cannot be made or read.
var ErrInvalid = errors.New("invalid pattern")

// MaxRanks bounds the ranks of a pattern.
const MaxRanks = pfprof.MaxRanks

// maxFlows bounds the flows of a pattern.
const maxFlows = 1 << 26

// MaxBytes bounds the sum of a pattern's flows.
const MaxBytes = 1 << 60

// Flow is what a rank sends to another one, or to itself, in a whole run.
type Flow struct {
	From, To int32
	Bytes    uint64
}

// Pattern is the traffic between the ranks 0 to Ranks-1: one Flow for each pair, in
// ascending order.
type Pattern struct {
	Ranks int
	Flows []Flow
}

// newPattern sorts flows, adds up those of a pair, and leaves out empty ones.
func newPattern(ranks int, flows []Flow) (*Pattern, error) {
	sum := uint64(0)
	for _, f := range flows {
		if f.Bytes > MaxBytes || sum+f.Bytes > MaxBytes {
			return nil, fmt.Errorf("%w: more than 2^60 bytes in all", ErrInvalid)
		}
		sum += f.Bytes
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	kept := flows[:0]
	for _, f := range flows {
		switch n := len(kept); {
		case f.Bytes == 0:
		case n > 0 && kept[n-1].From == f.From && kept[n-1].To == f.To:
			kept[n-1].Bytes += f.Bytes
		default:
			kept = append(kept, f)
		}
	}
	return &Pattern{ranks, kept}, nil
}

// Bytes is the sum of all flows.
func (p *Pattern) Bytes() (sum uint64) {
	for _, f := range p.Flows {
		sum += f.Bytes
	}
	return sum
}

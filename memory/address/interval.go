package address

import (
	"fmt"
	"math/bits"

	"exnet/fabric"
)

// MaxIntervals is how many intervals an SMFU has (thesis 000, 3.2.4).
const MaxIntervals = 64

// Interval is a range of a node's addresses that are another node's memory.
type Interval struct {
	Start, End uint64 // iStart, and the first address after it
	// Target is where it begins at the other node: tStart.
	Target uint64
	// Node is the other node, unless Mask is set.
	Node fabric.NodeID
	// Mask are the bits of the offset that choose the node, one after the other: nodes whose memory
	// is interleaved. 0: none.
	Mask uint64
}

// Intervals are the intervals of an SMFU. The zero value has none.
type Intervals struct {
	list [MaxIntervals]Interval
	used [MaxIntervals]bool
}

// Set sets interval i. The error wraps fabric.ErrInvalid if there is no such interval or it makes
// no sense, and fabric.ErrInUse if it overlaps another one.
func (s *Intervals) Set(i int, v Interval) error {
	switch {
	case i < 0 || i >= MaxIntervals:
		return fmt.Errorf("address: interval %d: there are %d, from 0 on: %w", i, MaxIntervals, fabric.ErrInvalid)
	case v.Start >= v.End:
		return fmt.Errorf("address: interval %d from %#x to %#x is empty: %w", i, v.Start, v.End, fabric.ErrInvalid)
	case v.Target+(v.End-v.Start) < v.Target:
		return fmt.Errorf("address: interval %d ends past the last address of its target: %w", i, fabric.ErrInvalid)
	case v.Mask != 0 && (bits.OnesCount64(v.Mask) != bits.Len64(v.Mask)-bits.TrailingZeros64(v.Mask) || bits.OnesCount64(v.Mask) > 16):
		return fmt.Errorf("address: interval %d: mask %#x: use up to 16 bits in a row: %w", i, v.Mask, fabric.ErrInvalid)
	}
	for k, o := range s.list {
		if k != i && s.used[k] && v.Start < o.End && o.Start < v.End {
			return fmt.Errorf("address: interval %d overlaps interval %d: %w", i, k, fabric.ErrInUse)
		}
	}
	s.list[i], s.used[i] = v, true
	return nil
}

// Add sets the first interval that is free, and returns its number. The error wraps fabric.ErrAgain
// if there is none, or is that of Set.
func (s *Intervals) Add(v Interval) (int, error) {
	for i, used := range s.used {
		if !used {
			return i, s.Set(i, v)
		}
	}
	return 0, fmt.Errorf("address: all %d intervals are in use: %w", MaxIntervals, fabric.ErrAgain)
}

// Clear frees interval i.
func (s *Intervals) Clear(i int) {
	if i >= 0 && i < MaxIntervals {
		s.used[i] = false
	}
}

// Find returns whose memory an address is, and the address there (equations 3.1 to 3.4). The error
// wraps fabric.ErrProtection if it is in no interval.
func (s *Intervals) Find(addr uint64) (fabric.NodeID, uint64, error) {
	for i, v := range s.list {
		if !s.used[i] || addr < v.Start || addr >= v.End {
			continue
		}
		g := addr - v.Start // 3.1
		if v.Mask == 0 {
			return v.Node, g + v.Target, nil // 3.2
		}
		node := (g & v.Mask) >> bits.TrailingZeros64(v.Mask)  // 3.3
		return fabric.NodeID(node), g&^v.Mask + v.Target, nil // 3.4
	}
	return 0, 0, fmt.Errorf("address: %#x is in no interval: %w", addr, fabric.ErrProtection)
}

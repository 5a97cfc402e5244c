package wire

import (
	"fmt"
	"math/bits"
)

// maxGets is how many GETs of a direction move at a time: HyperTransport's source tags (thesis 004,
// 5.4.2).
const maxGets = 32

// tags number the operations of this node that are on the way. A NIC has as many operations as it
// likes; the peer sees few tags, keeps what it needs of each one, and answers with the number. Its
// low bits are the tag, the rest is how often that was used, so that a late answer finds nothing.
//
// Concurrency: its owner's.
type tags struct {
	ops     []*op
	uses    []uint32
	free    uint64    // a bit for each tag
	waiting []pending // operations without a tag
}

// pending is an operation that waits for a tag.
type pending struct {
	op    *op
	start func(number uint32)
}

// newTags returns n tags, a power of two up to 64.
func newTags(n int) tags {
	return tags{ops: make([]*op, n), uses: make([]uint32, n), free: ^uint64(0) >> (64 - n)}
}

// takeTag gives o a number, which counts as used until freeTag; false: all tags are in use.
func (t *tags) takeTag(o *op) (number uint32, ok bool) {
	if t.free == 0 {
		return 0, false
	}
	tag := bits.TrailingZeros64(t.free)
	t.free &^= 1 << tag
	t.ops[tag] = o
	t.uses[tag]++
	return t.uses[tag]*uint32(len(t.ops)) + uint32(tag), true
}

// operationOf returns the operation with a number; an error: it is not under way.
func (t *tags) operationOf(number uint32) (*op, error) {
	tag, n := number%uint32(len(t.ops)), uint32(len(t.ops))
	if o := t.ops[tag]; o != nil && number == t.uses[tag]*n+tag {
		return o, nil
	}
	return nil, fmt.Errorf("answer to operation %d, which is not under way", number)
}

// freeTag frees the tag of a number that op has found.
func (t *tags) freeTag(number uint32) {
	tag := number % uint32(len(t.ops))
	t.ops[tag] = nil
	t.free |= 1 << tag
}

// inUse is how many operations are under way.
func (t *tags) inUse() int { return len(t.ops) - bits.OnesCount64(t.free) }

// startWaiting starts an operation that waits, if there is a tag for it.
func (t *tags) startWaiting() {
	if len(t.waiting) == 0 {
		return
	}
	p := t.waiting[0]
	if number, ok := t.takeTag(p.op); ok {
		t.waiting[0] = pending{}
		t.waiting = t.waiting[1:]
		p.start(number)
	}
}

// takeAll returns every operation, and leaves none.
func (t *tags) takeAll() (ops []*op) {
	for _, o := range t.ops {
		if o != nil {
			ops = append(ops, o)
		}
	}
	for _, p := range t.waiting {
		ops = append(ops, p.op)
	}
	*t = newTags(len(t.ops))
	return ops
}

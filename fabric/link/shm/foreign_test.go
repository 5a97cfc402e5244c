package shm_test

import (
	"testing"

	"exnet/fabric/fabrictest"
	"exnet/internal/foreigntest"
)

// The peer of a link changes each byte of its ring and its arena as soon as it was read on this
// side: messages and transfers, over every way that the link has for them, come as they were sent.
func TestReadOnce(t *testing.T) {
	near, far := fabrictest.NewNIC(t, 0), fabrictest.NewNIC(t, 1)
	l, foe := fabrictest.JoinSHM(t, near, far)
	arena, err := far.ATU().Arena()
	if err != nil {
		t.Fatal(err)
	}
	fabrictest.ReadOnce(t, near, far, func(mem []byte) bool {
		if off, ok := l.RingOffset(mem); ok {
			return foreigntest.Flip(foe.Segment()[off:][:len(mem)])
		}
		if off, ok := l.ArenaOffset(mem); ok {
			return foreigntest.Flip(arena.Bytes()[off:][:len(mem)])
		}
		return false // private, or what the far NIC reads
	})
}

package directsockets

import (
	"testing"

	"exnet/directsockets/segment"
)

// hasty is a peer that promotes, sends and closes between two looks at it.
type hasty struct {
	looks int
	when  int // the look before which it does so
}

func (h *hasty) done() bool {
	h.looks++
	return h.looks > h.when
}

func (h *hasty) Err() error {
	if h.done() {
		return segment.ErrClosed
	}
	return nil
}

func (h *hasty) PromotedAt() (uint64, bool) { return 7, h.done() }

// A peer that has closed is not gone as long as it has left something in the segment,
// whenever it did so.
func TestPromotionBeforeEnd(t *testing.T) {
	for when := range 3 {
		if at, ok, err := promotion(&hasty{when: when}); !ok && err != nil || ok && at != 7 {
			t.Errorf("before look %d: promoted %v, %v", when, ok, err)
		}
	}
}

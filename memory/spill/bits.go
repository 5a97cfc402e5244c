package spill

// bits are a bit for each page.
type bits []uint64

func newBits(pages int64) bits { return make(bits, (pages+63)/64) }

func (b bits) isSet(page int64) bool { return b[page/64]>>(page%64)&1 != 0 }

// setBit sets or clears a bit, and returns whether that was a change.
func (b bits) setBit(page int64, on bool) bool {
	if b.isSet(page) == on {
		return false
	}
	b[page/64] ^= 1 << (page % 64)
	return true
}

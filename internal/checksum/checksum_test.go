package checksum

import (
	"bytes"
	"math/bits"
	"testing"
)

// Each bit, each length and each piece counts, and a changed bit changes many of the sum's.
func TestOf(t *testing.T) {
	seen := make(map[uint64]string)
	note := func(what string, sum uint64) {
		t.Helper()
		if seen[sum] != "" {
			t.Errorf("%s has the sum of %s", what, seen[sum])
		}
		seen[sum] = what
	}
	changed, n := 0, 0
	text := bytes.Repeat([]byte("exnet "), 20)
	whole := Of(text)
	note("the text", whole)
	for i := range 8 * len(text) {
		other := bytes.Clone(text)
		other[i/8] ^= 1 << (i % 8)
		note("a changed bit", Of(other))
		changed, n = changed+bits.OnesCount64(Of(other)^whole), n+1
	}
	for size := range len(text) {
		note("a part", Of(text[:size]))
		note("zeros", Of(make([]byte, size+1)))
		note("two pieces", Add(Of(text[:size]), text[size:]))
	}
	if changed < n*16 {
		t.Errorf("a changed bit changes %d of 64", changed/n)
	}
	if Of(bytes.Clone(text)) != whole {
		t.Error("the same contents have another sum")
	}
}

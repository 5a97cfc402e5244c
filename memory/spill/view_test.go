package spill

import (
	"bytes"
	"testing"

	"exnet/foreign"
)

// What is mapped is seen where it is: pages that are all written, and in one piece of a lease that
// has not ended.
func TestStoreView(t *testing.T) {
	m := newMarket(4 << 20)
	s, err := New(t.Context(), Config{Size: 1 << 20, Borrow: m.borrow})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const inPiece = 64 << 10 / pageSize
	for n := range inPiece + 2 {
		if n == 4 {
			continue
		}
		if _, err := s.WriteAt(page(n, 7), int64(n)*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	view := func(first, n int) (got []byte, ok bool) {
		ok = s.View(int64(first)*pageSize, int64(n)*pageSize, func(m foreign.Memory) { got = m.AppendTo(nil) })
		return got, ok
	}
	if got, ok := view(5, 2); !ok || !bytes.Equal(got, append(page(5, 7), page(6, 7)...)) {
		t.Errorf("%v, and %d bytes", ok, len(got))
	}
	if err := s.Discard(9*pageSize, pageSize); err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string][2]int{
		"not written": {3, 2}, "discarded": {8, 2}, "in two pieces": {inPiece - 1, 2}, "none": {5, 0}, "outside": {256, 1}, "before": {-1, 1},
	} {
		if _, ok := view(at[0], at[1]); ok {
			t.Errorf("%s: %v were seen", what, at)
		}
	}
	all := int64(inPiece+2) * pageSize
	if !s.Keeps(0, all) {
		t.Error("not kept")
	}
	m.any().end()
	if s.Keeps(5*pageSize, pageSize) || s.Keeps(0, all) {
		t.Error("kept when the lease had ended")
	}
	if !s.Keeps(4*pageSize, pageSize) {
		t.Error("what was never written is not kept when the lease had ended")
	}
	if _, ok := view(5, 1); ok {
		t.Error("seen when the lease had ended")
	}
	if _, err := s.ReadAt(make([]byte, pageSize), 5*pageSize); err == nil {
		t.Error("read when the lease had ended")
	}
	if _, ok := view(5, 1); ok {
		t.Error("seen when it was lost")
	}
	if s.Keeps(5*pageSize, pageSize) {
		t.Error("kept when it was lost")
	}
	if _, err := s.WriteAt(page(5, 8), 5*pageSize); err != nil || !s.Keeps(5*pageSize, pageSize) || s.Keeps(6*pageSize, pageSize) {
		t.Errorf("written anew: %v, and kept: %v, the next page: %v", err, s.Keeps(5*pageSize, pageSize), s.Keeps(6*pageSize, pageSize))
	}
}

package shm

import (
	"testing"

	"golang.org/x/sys/unix"
)

// holder is what has a descriptor.
type holder interface {
	Fd() int
	Retire()
}

// Where the kernel gives out no more memory than there is, a segment has all of its
// pages from the beginning, and a piece of an arena when it is handed out; else none.
func TestReserve(t *testing.T) {
	was := Strict
	defer func() { Strict = was }()
	blocks := func(s holder) int64 {
		var st unix.Stat_t
		if err := unix.Fstat(s.Fd(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	const size = 64 * PageSize
	for _, now := range []bool{false, true} {
		Strict = func() bool { return now }
		whole := map[bool]int64{true: size}[now]
		for name, create := range map[string]func(string, int) (holder, error){
			"Create":       func(n string, size int) (holder, error) { return Create(n, size) },
			"CreateShared": func(n string, size int) (holder, error) { return CreateShared(n, size) },
		} {
			s, err := create("test", size)
			if err != nil {
				t.Fatal(err)
			}
			if got := blocks(s); got != whole {
				t.Errorf("strict %v: %s: %d bytes, want %d", now, name, got, whole)
			}
			s.Retire()
		}
		a, err := NewArena("test", size)
		if err != nil {
			t.Fatal(err)
		}
		if got := blocks(a.Segment); got != 0 {
			t.Errorf("strict %v: an arena: %d bytes, want none", now, got)
		}
		if _, err := a.Alloc(PageSize + 1); err != nil {
			t.Fatal(err)
		}
		if got, want := blocks(a.Segment), map[bool]int64{true: 2 * PageSize}[now]; got != want {
			t.Errorf("strict %v: a piece of an arena: %d bytes, want %d", now, got, want)
		}
		a.Retire()
	}
}

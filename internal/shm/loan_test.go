package shm

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/foreign"
)

func newLoan(t *testing.T, size int64) (int, *Loan) {
	t.Helper()
	fd, err := CreateLoan("loan", size, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	l, err := MapLoan(fd, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return fd, l
}

func TestLoan(t *testing.T) {
	fd, l := newLoan(t, 4*PageSize)
	data := bytes.Repeat([]byte("exnet"), 2000)
	got := make([]byte, len(data))
	if err := errors.Join(l.WriteAt(data, 777), l.ReadAt(got, 777)); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%v", err)
	}
	if err := errors.Join(l.Discard(PageSize, PageSize), l.ReadAt(got[:1], 2*PageSize-1)); err != nil || got[0] != 0 {
		t.Errorf("after Discard: %v, %v", got[0], err)
	}
	if err := l.View(777, 9, func(m foreign.Memory) { got = m.AppendTo(nil) }); err != nil || string(got) != "exnetexne" {
		t.Errorf("a view: %q, %v", got, err)
	}
	if err := unix.Ftruncate(fd, 8*PageSize); !errors.Is(err, unix.EPERM) {
		t.Errorf("a loan became longer: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); !errors.Is(err, unix.EPERM) {
		t.Errorf("a borrower sealed it against being cut: %v", err)
	}
	if _, err := MapLoan(fd, PageSize); !errors.Is(err, ErrSegment) {
		t.Errorf("another size: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"read": l.ReadAt(got, 777), "write": l.WriteAt(data, 777)} {
		if !errors.Is(err, ErrCut) {
			t.Errorf("%s after the cut: %v", what, err)
		}
	}
	if err := l.View(777, 1, func(foreign.Memory) {}); err != nil {
		t.Errorf("a view of what has been cut is for the kernel to refuse: %v", err)
	}
	l.Close()
	if err := l.View(777, 1, func(foreign.Memory) { t.Error("a view after Close") }); !errors.Is(err, ErrCut) {
		t.Errorf("a view after Close: %v", err)
	}
	if err := l.ReadAt(got, 0); !errors.Is(err, ErrCut) {
		t.Errorf("after Close: %v", err)
	}
	l.Close()
}

// Memory is cut, and unmapped, while others use it.
func TestLoanCutInUse(t *testing.T) {
	fd, l := newLoan(t, 1<<20)
	var all sync.WaitGroup
	var ended atomic.Int32
	began := make(chan struct{}, 4)
	for range 4 {
		all.Go(func() {
			p := make([]byte, 1<<20)
			for i := 0; ; i++ {
				err := l.WriteAt(p, 0)
				if i == 0 {
					began <- struct{}{}
				}
				if errors.Is(err, ErrCut) {
					ended.Add(1)
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 4 {
		<-began
	}
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	l.Close()
	all.Wait()
	if ended.Load() != 4 {
		t.Errorf("%d of 4 saw the cut", ended.Load())
	}
}

// A fault in the caller's own memory is no cut.
func TestLoanForeignFault(t *testing.T) {
	_, l := newLoan(t, PageSize)
	fd, other := newLoan(t, PageSize)
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = l.ReadAt(other.mem, 0)
}

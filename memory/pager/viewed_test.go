package pager

import (
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/shm"
)

// viewed is a store in a file that is mapped, as a lease of the same host. The one that lends cuts
// it when it is looked at for the last time.
type viewed struct {
	*shm.Loan
	fd    int
	last  int64 // 0: it is never cut
	looks atomic.Int64
	reads atomic.Int64
}

func newViewed(t *testing.T, last int64) *viewed {
	t.Helper()
	const size = 1 << 26
	fd, err := shm.CreateLoan("viewed", size, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	l, err := shm.MapLoan(fd, size)
	if err != nil {
		t.Fatal(err)
	}
	return &viewed{Loan: l, fd: fd, last: last}
}

func (v *viewed) ReadAt(p []byte, off int64) (int, error) {
	v.reads.Add(1)
	return len(p), v.Loan.ReadAt(p, off)
}

func (v *viewed) WriteAt(p []byte, off int64) (int, error) { return len(p), v.Loan.WriteAt(p, off) }

func (v *viewed) View(off, n int64, f func(foreign.Memory)) bool {
	if v.looks.Add(1) == v.last {
		if err := unix.Ftruncate(v.fd, 0); err != nil {
			panic(err)
		}
	}
	return v.Loan.View(off, n, f) == nil
}

func (v *viewed) Close() error {
	v.Loan.Close()
	return nil
}

// Pages of a store that is mapped come from there, and by no other way. If it is cut at that
// moment, who waits for the page gets SIGBUS, and one line says so.
func TestStoreViewed(t *testing.T) {
	needPaging(t)
	program := compile(t, "rows")
	s := newViewed(t, 0)
	o := runPaged(t, setting{local: Smallest, store: s, size: 1 << 26}, program, "16")
	o.clean(t)
	if o.stdout != "ok\n" || s.reads.Load() > 0 {
		t.Errorf("%q, %d reads", o.stdout, s.reads.Load())
	}
	s = newViewed(t, 20)
	o = runPaged(t, setting{local: Smallest, store: s, size: 1 << 26}, program, "16")
	ws, ok := o.state.Sys().(syscall.WaitStatus)
	if !ok || ws.Signal() != syscall.SIGBUS || len(o.said) != 1 || !hasText(o.said, shm.ErrCut.Error()) || s.reads.Load() == 0 {
		t.Errorf("cut: %v %q, %d reads\n%s", o.state, o.said, s.reads.Load(), o.stderr)
	}
}

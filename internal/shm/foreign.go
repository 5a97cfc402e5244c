package shm

import (
	"os"

	"exnet/foreign"

	"golang.org/x/sys/unix"
)

// Foreign is a mapped memfd that another process can write.
//
// Concurrency: Memory may be used from many goroutines; Retire may be called at any
// time.
type Foreign struct{ seg *Segment }

// Memory lends the memory as long as the Foreign can be reached.
func (f *Foreign) Memory() foreign.Memory { return foreign.Of(f.seg.mem) }

// Exposed lends the memory as what it is not, a plain slice, for a program that asks
// for a buffer which its peer can write. No other code takes it.
func (f *Foreign) Exposed() []byte { return f.seg.mem }

// Len is the size in bytes.
func (f *Foreign) Len() int { return len(f.seg.mem) }

// Offset is where b begins in the memory; false unless all of b is in it.
func (f *Foreign) Offset(b []byte) (int, bool) { return offsetIn(f.seg.mem, b) }

// Fd lends the descriptor of a segment that was created here, until CloseFd or
// Retire; -1 if it is closed.
func (f *Foreign) Fd() int { return f.seg.Fd() }

// CloseFd closes that descriptor; the mapping stays.
func (f *Foreign) CloseFd() { f.seg.CloseFd() }

// Discard gives back the n bytes from off on, whole pages, which are zeros from then on, for
// all who have mapped them. False: they stay as they are.
func (f *Foreign) Discard(off, n int) bool {
	return !Strict() && os.Getpagesize() == PageSize && unix.Madvise(f.seg.mem[off:off+n], unix.MADV_REMOVE) == nil
}

// Retire returns the shared memory, as that of Segment.
func (f *Foreign) Retire() { f.seg.Retire() }

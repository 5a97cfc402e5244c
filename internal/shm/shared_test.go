package shm

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func shared(t *testing.T, size int) *Foreign {
	t.Helper()
	s, err := CreateShared("shm-test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Retire)
	return s
}

// Both sides write, nobody resizes, nobody adds a seal.
func TestShared(t *testing.T) {
	near := shared(t, 8192)
	far, err := MapShared(near.Fd(), 4096, 8192, SharedSeals, true)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Retire()
	if far.Len() != 8192 {
		t.Error("mapped", far.Len())
	}
	near.Memory().Words32(4, 2)[1].Store(7)
	far.Memory().Words32(12, 1)[0].Store(8)
	if a, b := far.Memory().Words32(8, 1)[0].Load(), near.Memory().Words32(12, 1)[0].Load(); a != 7 || b != 8 {
		t.Error(a, b)
	}
	if unix.Ftruncate(near.Fd(), 4096) == nil || unix.Ftruncate(near.Fd(), 16384) == nil {
		t.Error("resized")
	}
	if _, err := unix.FcntlInt(uintptr(near.Fd()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err == nil {
		t.Error("a seal was added")
	}
	if off, ok := far.Offset(far.Exposed()[100:200]); off != 100 || !ok {
		t.Error(off, ok)
	}
	read, err := MapShared(near.Fd(), 1, 8192, FixedSeals, false)
	if err != nil {
		t.Fatal(err)
	}
	read.Retire()
}

func TestMapSharedRefuses(t *testing.T) {
	near := shared(t, 8192)
	owned := segment(t, 8192) // sealed against other writers
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, tt := range map[string]struct{ fd, min, max int }{
		"too small": {near.Fd(), 8193, 10000}, "too large": {near.Fd(), 4096, 8191},
		"no memfd": {int(null.Fd()), 1, 8192}, "another's alone": {owned.Fd(), 1, 8192},
	} {
		if _, err := MapShared(tt.fd, tt.min, tt.max, FixedSeals, true); !errors.Is(err, ErrSegment) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := MapShared(owned.Fd(), 1, 8192, FixedSeals, false); err != nil { // for reading it may be
		t.Error(err)
	} else {
		s.Retire()
	}
	if _, err := MapShared(-1, 1, 8192, FixedSeals, true); err == nil {
		t.Error("mapped nothing")
	}
}

// What was written before a Release is there for whoever has seen it.
func TestRelease(t *testing.T) {
	near := shared(t, 8192)
	far, err := MapShared(near.Fd(), 8192, 8192, SharedSeals, true)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Retire()
	const n = 100000
	go func() {
		w := near.Memory().Words(0, 513)
		for i := uint64(1); i <= n; i++ {
			for w[512].Load() != i-1 { // the answer
				runtime.Gosched()
			}
			copy(near.Exposed()[1024:], []byte{byte(i), byte(i >> 8), byte(i >> 16)})
			PrefetchW(near.Memory().Part(2048, 452))
			Publish()
			Release(&w[0], i)
		}
	}()
	w := far.Memory().Words(0, 513)
	for i := uint64(1); i <= n; i++ {
		for w[0].Load() != i {
			runtime.Gosched()
		}
		Observe()
		if b := far.Exposed()[1024:]; b[0] != byte(i) || b[1] != byte(i>>8) || b[2] != byte(i>>16) {
			t.Fatal("round", i, b[:3])
		}
		Release(&w[512], i)
	}
}

func TestSpinSlot(t *testing.T) {
	s := &shared(t, 4096).Memory().Slots(0, 2)[1]
	PrefetchSlot(&s.Status)
	s.Status.Store(7 | 9<<32)
	if SpinSlot(&s.Status, 9, 10) || !SpinSlot(&s.Status, 7, 1) || !SpinSlot(&s.Status, 7, 0) {
		t.Error("looks at something else")
	}
	go s.Status.Store(9)
	for end := time.Now().Add(3 * time.Minute); !SpinSlot(&s.Status, 9, 1000); {
		if time.Now().After(end) {
			t.Fatal("not seen")
		}
	}
	Pause(0)
}

func TestCPU(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		t.Skip(err)
	}
	defer unix.SchedSetaffinity(0, &old)
	for cpu := range 1024 {
		if !old.IsSet(cpu) {
			continue
		}
		one.Zero()
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		if a, b := CPU(), getcpu(); a != cpu || b != cpu {
			t.Errorf("on CPU %d: %d, %d", cpu, a, b)
		}
	}
}

// Dekker's protocol with no fence on one side and Membarrier on the other: never do
// both see nothing.
func TestMembarrier(t *testing.T) {
	if !Expedited() {
		t.Skip("this kernel has no membarrier")
	}
	var x, y atomic.Uint64
	var sawX, sawY uint64
	var turn [2]atomic.Uint64
	const rounds = 4000
	go func() { // the side that has no fence
		for i := uint64(1); i <= rounds; i++ {
			for turn[0].Load() != i {
			}
			Release(&x, i)
			sawY = y.Load()
			turn[1].Store(i)
		}
	}()
	for i := uint64(1); i <= rounds; i++ {
		turn[0].Store(i)
		y.Store(i)
		Membarrier()
		sawX = x.Load()
		for turn[1].Load() != i {
			runtime.Gosched()
		}
		if sawX != i && sawY != i {
			t.Fatalf("round %d: neither saw the other", i)
		}
	}
}

// Bytes and descriptors come over a bell; the other end's absence is seen.
func TestHush(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if got, gone := Hush(fds[0], nil); len(got) > 0 || gone {
		t.Error(got, gone)
	}
	s := shared(t, 4096)
	for range 3 {
		Ring(fds[1])
		if !RingWith(fds[1], s.Fd()) {
			t.Fatal("not sent")
		}
	}
	got, gone := Hush(fds[0], []int{-5})
	for _, fd := range got[1:] {
		if far, err := MapShared(fd, 4096, 4096, SharedSeals, true); err != nil {
			t.Error(err)
		} else {
			far.Retire()
		}
		unix.Close(fd)
	}
	if len(got) != 4 || !slices.Equal(got[:1], []int{-5}) || gone {
		t.Error(got, gone)
	}
	if n := testing.AllocsPerRun(100, func() {
		Ring(fds[1])
		Hush(fds[0], nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for range 100000 { // more than fits
		if !RingWith(fds[1], s.Fd()) {
			break
		}
	}
	if HungUp(fds[0]) {
		t.Error("bytes count as the other end's absence")
	}
	unix.Close(fds[1])
	if !HungUp(fds[0]) {
		t.Error("the other end's absence follows bytes, and is not seen")
	}
	for end := time.Now().Add(3 * time.Minute); ; {
		got, gone := Hush(fds[0], nil)
		for _, fd := range got {
			unix.Close(fd)
		}
		if gone {
			break
		}
		if time.Now().After(end) {
			t.Fatal("its end is not seen")
		}
	}
	if RingWith(fds[0], s.Fd()) {
		t.Error("sent to nobody")
	}
}

// Of two that each swap a word and then look at the other's, one sees the other, under the race
// detector, too. With Store neither does at times there.
func TestSwapThenLoad(t *testing.T) {
	const rounds = 5000
	words := shared(t, 8192).Memory().Words(0, 1024)
	x, y := &words[0], &words[512]
	var turn, done, seen atomic.Uint64 // of the far side
	turns := func(w *atomic.Uint64, n uint64) {
		for i := 0; w.Load() != n; i++ {
			if i%1000 == 999 {
				runtime.Gosched()
			}
		}
	}
	go func() {
		for n := uint64(1); n <= rounds; n++ {
			turns(&turn, n)
			y.Swap(n)
			seen.Store(x.Load())
			done.Store(n)
		}
	}()
	for n := uint64(1); n <= rounds; n++ {
		turn.Store(n)
		x.Swap(n)
		near := y.Load()
		turns(&done, n)
		if near != n && seen.Load() != n {
			t.Fatalf("round %d: neither sees the other", n)
		}
	}
}

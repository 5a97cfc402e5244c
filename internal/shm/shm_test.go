package shm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func segment(t *testing.T, size int) *Segment {
	t.Helper()
	s, err := Create("shm-test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Retire)
	return s
}

func TestSegment(t *testing.T) {
	near := segment(t, 8192)
	far, err := Map(near.Fd(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Retire()
	Words(near.Bytes(), 8, 4)[3].Store(42)
	if got := far.Memory().Words(32, 1)[0].Load(); got != 42 {
		t.Errorf("the other side sees %d", got)
	}
	s := &Slots(near.Bytes(), 4096, 2)[1]
	copy(s.Payload[:], "hello")
	s.Status.Store(7)
	if f := &far.Memory().Slots(4096, 2)[1]; f.Status.Load() != 7 || !bytes.HasPrefix(f.Payload().AppendTo(nil), []byte("hello")) {
		t.Error("the slot did not arrive")
	}
}

// Nobody but the owner writes, and nobody resizes.
func TestSeals(t *testing.T) {
	s := segment(t, 4096)
	fd := s.Fd()
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("a peer can map the segment for writing")
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("a peer can shrink the segment")
	}
	if err := unix.Ftruncate(fd, 8192); err == nil {
		t.Error("a peer can grow the segment")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Error("a peer can write to the file")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("a peer can add seals")
	}
}

func TestMapRefuses(t *testing.T) {
	open, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	if err := unix.Ftruncate(open, 4096); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s := segment(t, 4096)
	for name, tt := range map[string]struct{ fd, size int }{
		"not sealed": {open, 4096}, "too large": {s.Fd(), 8192}, "too small": {s.Fd(), 2048},
		"empty": {s.Fd(), 0}, "negative": {s.Fd(), -1}, "no memfd": {int(null.Fd()), 4096},
	} {
		if _, err := Map(tt.fd, tt.size); !errors.Is(err, ErrSegment) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Map(-1, 4096); err == nil {
		t.Error("mapped nothing")
	}
}

// After Retire the words are there, as zeros, and the memory is not.
func TestRetire(t *testing.T) {
	s := segment(t, 4096)
	w := Words(s.Bytes(), 0, 1)
	w[0].Store(5)
	s.Retire()
	s.Retire()
	if w[0].Load() != 0 || s.Fd() != -1 {
		t.Errorf("word %d, descriptor %d", w[0].Load(), s.Fd())
	}
	w[0].Store(6) // not a fault
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), "memfd:shm-test") {
		t.Errorf("still mapped (%v)", err)
	}
}

func TestViewsCheckBounds(t *testing.T) {
	mem := segment(t, 4096).Bytes()
	for name, f := range map[string]func(){
		"words beyond the end": func() { Words(mem, 4096-8, 2) },
		"slots beyond the end": func() { Slots(mem, 0, 33) },
		"negative":             func() { Words(mem, -8, 1) },
		"unaligned words":      func() { Words(mem, 4, 1) },
		"unaligned slots":      func() { Slots(mem, 4, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func arena(t *testing.T, pages int) *Arena {
	t.Helper()
	a, err := NewArena("shm-test-arena", pages*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Retire)
	return a
}

func TestArena(t *testing.T) {
	a := arena(t, 8)
	x, err := a.Alloc(PageSize + 1) // two pages
	if err != nil || len(x) != PageSize+1 || cap(x) != len(x) {
		t.Fatalf("%d bytes, capacity %d, %v", len(x), cap(x), err)
	}
	y, err := a.Alloc(6 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if off, ok := a.Offset(y[5:9]); !ok || off != 2*PageSize+5 {
		t.Errorf("offset %d, %v", off, ok)
	}
	for _, b := range [][]byte{nil, make([]byte, 10), make([]byte, 9*PageSize)} {
		if off, ok := a.Offset(b); ok {
			t.Errorf("%d bytes of other memory at %d", len(b), off)
		}
	}
	for _, n := range []int{0, -1, 1, 9 * PageSize} {
		if _, err := a.Alloc(n); !errors.Is(err, ErrFull) {
			t.Errorf("alloc %d: %v", n, err)
		}
	}
	a.Free(x)
	if z, err := a.Alloc(2 * PageSize); err != nil || &z[0] != &x[0] {
		t.Errorf("the same pages again: %v", err)
	}
	for name, b := range map[string][]byte{"other memory": make([]byte, 10), "the middle": y[10:]} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("free %s: no panic", name)
				}
			}()
			a.Free(b)
		}()
	}
	a.Free(y)
	defer func() {
		if recover() == nil {
			t.Error("freed twice: no panic")
		}
	}()
	a.Free(y)
}

// Pieces come and go; they never overlap, and in the end all is free and in one
// piece.
func TestArenaModel(t *testing.T) {
	const pages = 64
	a := arena(t, pages)
	rng := rand.New(rand.NewPCG(3, 4))
	var owner [pages]int
	held := make(map[int][]byte)
	for id := 1; id < 20000; id++ {
		if rng.IntN(2) == 0 {
			n := 1 + rng.IntN(6*PageSize)
			b, err := a.Alloc(n)
			if err != nil {
				continue
			}
			off, _ := a.Offset(b)
			for p := off / PageSize; p*PageSize < off+n; p++ {
				if owner[p] != 0 {
					t.Fatalf("page %d is handed out twice", p)
				}
				owner[p] = id
			}
			held[id] = b
			continue
		}
		for k, b := range held {
			a.Free(b)
			for p := range owner {
				if owner[p] == k {
					owner[p] = 0
				}
			}
			delete(held, k)
			break
		}
	}
	for _, b := range held {
		a.Free(b)
	}
	if _, err := a.Alloc(pages * PageSize); err != nil {
		t.Errorf("all of it in one piece: %v", err)
	}
}

func TestArenaDoesNotAllocate(t *testing.T) {
	a := arena(t, 64)
	x, _ := a.Alloc(10)
	defer a.Free(x)
	if n := testing.AllocsPerRun(100, func() {
		b, err := a.Alloc(5000)
		if err != nil {
			t.Fatal(err)
		}
		a.Free(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRing(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "socket")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	Ring(fds[0])
	b := make([]byte, 10)
	if n, err := c.Read(b); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := syscall.SetNonblock(fds[0], false); err != nil { // what a peer could do
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		for range 100000 { // more than fits
			Ring(fds[0])
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Error("Ring sleeps when the other side does not read")
	}
	c.Close()
	Ring(fds[0]) // nobody there: no signal
	unix.Close(fds[0])
}

// Package brokertest provides helpers for the tests of the broker and its
// parts.
package brokertest

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// Eventually waits until ok says so.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no success within the time: %s", what)
		}
	}
}

// SocketPair is a pair of connected sockets, as between a client and its broker.
func SocketPair(t testing.TB) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "peer")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// File makes sealed memory of size bytes that begins with text.
func File(t testing.TB, text []byte, size, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, text[:min(len(text), size)], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Tracer is a descriptor whose closing everywhere can be seen.
type Tracer struct {
	t    testing.TB
	R, W int // a pipe
}

// NewTracer makes one.
func NewTracer(t testing.TB) *Tracer {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	return &Tracer{t, p[0], p[1]}
}

// ClosedEverywhere closes the own descriptor and waits for all others to be closed.
func (tr *Tracer) ClosedEverywhere() {
	tr.t.Helper()
	unix.Close(tr.W)
	defer unix.Close(tr.R)
	var b [1]byte
	Eventually(tr.t, "the descriptor is closed", func() bool {
		n, err := unix.Read(tr.R, b[:])
		return n == 0 && err == nil
	})
}

package shm_test

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/nic"
)

const vpid = fabric.VPID(1)

// sockets returns both ends of a socket.
func sockets(tb testing.TB, kind int) (a, b *net.UnixConn) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socketpair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			tb.Fatal(err)
		}
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// join connects two NICs of this process.
func join(tb testing.TB, x, y *nic.NIC) (*shm.Link, *shm.Link) {
	tb.Helper()
	a, b := sockets(tb, unix.SOCK_STREAM)
	type result struct {
		l   *shm.Link
		err error
	}
	other := make(chan result, 1)
	go func() {
		l, err := shm.Connect(y, b, shm.Config{})
		other <- result{l, err}
	}()
	l, err := shm.Connect(x, a, shm.Config{})
	r := <-other
	if err != nil || r.err != nil {
		tb.Fatal(err, r.err)
	}
	tb.Cleanup(func() {
		_, _ = l.Close(), r.l.Close() // a test may have closed them
		<-l.Done()
		<-r.l.Done()
	})
	return l, r.l
}

// pair returns two NICs that are joined.
func pair(tb testing.TB) (x, y *nic.NIC, lx, ly *shm.Link) {
	tb.Helper()
	x, y = fabrictest.NewNIC(tb, 0), fabrictest.NewNIC(tb, 1)
	lx, ly = join(tb, x, y)
	return x, y, lx, ly
}

func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(5 * time.Second); !f(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within 5 s", what)
		}
	}
}

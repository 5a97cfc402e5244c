// Package rpctest makes descriptors that take an hour to close, for tests of who must not wait.
//
// # Architecture
//
//	Lingers ──▶ Give ──▶ the server under test, which closes it last
//
// # Concurrency
//
// Functions are for the goroutine of one test.
//
// # Limits
//
// Descriptors end with their test.
package rpctest

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// Lingers returns the descriptor of a TCP socket that takes an hour to close, or until the test or
// end ends: it has sent what its peer does not read.
func Lingers(t testing.TB) (fd int, end func()) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // resets it
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600})
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 1<<16))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(fd, false)
	return fd, func() { l.Close() }
}

// Give connects to a SOCK_SEQPACKET socket, sends a message with descriptors, and closes its own,
// so that whoever gets them closes them last. It returns the connection, which ends with the test.
func Give(t testing.TB, path string, message []byte, fds ...int) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	Send(t, conn, message, fds...)
	return conn
}

// Send is Give of a connection that is there.
func Send(t testing.TB, conn *net.UnixConn, message []byte, fds ...int) {
	t.Helper()
	if !TrySend(t, conn, message, fds...) {
		t.Fatal("the server has closed a descriptor before this process has: it did not have to wait")
	}
}

// TrySend is Send, but returns false if the server was faster: it has closed what it got before
// this process closed its own, which takes an hour then, or until the test ends, in a goroutine.
func TrySend(t testing.TB, conn *net.UnixConn, message []byte, fds ...int) bool {
	t.Helper()
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix(message, rights, nil); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() {
		var errs []error
		for _, fd := range fds {
			errs = append(errs, unix.Close(fd))
		}
		closed <- errors.Join(errs...)
	}()
	select {
	case err := <-closed:
		if err != nil {
			t.Fatal(err)
		}
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

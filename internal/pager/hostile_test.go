package pager

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lingers returns the descriptor of a TCP socket that takes an hour to close: it has sent what its
// peer does not read.
func lingers(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // resets it
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
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
	return fd
}

// greet connects to a Pager, says what is no hello, with descriptors, and closes its own. It
// returns the connection.
func greet(t *testing.T, path string, fds ...int) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte("no hello"), rights, nil); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Dup3(null, fd, unix.O_CLOEXEC), unix.Close(null), unix.Close(fd))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// TestSlowToClose has strangers send descriptors that take an hour to close, one by one, and
// more than a message of the protocol has: the Pager goes on serving others.
func TestSlowToClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pager")
	g, err := New(Config{Local: Smallest, Store: Memory(Smallest), Size: Smallest, Socket: path, Say: func(string) {}, Full: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	greet(t, path, lingers(t))
	greet(t, path, lingers(t), lingers(t), lingers(t), lingers(t), lingers(t), lingers(t))
	conn := greet(t, path)
	served := make(chan error, 1)
	go func() { served <- g.Run() }() // only now: whoever closes last takes an hour
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 64)); err != nil || n != welcomeLen {
		t.Errorf("%d bytes, %v: it serves nobody while it closes a stranger's socket", n, err)
	}
	g.Finish()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

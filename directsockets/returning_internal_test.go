package directsockets

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a closed connection has left ends with a reset when its peer has taken nothing for so long,
// and with an end of file when it has taken all.
func TestOutlive(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, patience := range []time.Duration{time.Millisecond, time.Hour} {
		shadow, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewConn(shadow, false, Config{Off: true})
		if err != nil {
			t.Fatal(err)
		}
		rest := make([]byte, 32<<20) // more than the buffers take
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.outlive(rest, patience)
		}()
		if patience < time.Hour {
			<-over
		}
		n, err := io.Copy(io.Discard, peer)
		<-over
		if reset := errors.Is(err, syscall.ECONNRESET); reset != (patience < time.Hour) || !reset && (err != nil || n != int64(len(rest))) {
			t.Errorf("patience %v: %d bytes, %v", patience, n, err)
		}
		peer.Close()
	}
}

// A connection whose bytes return to TCP, and whose peer has no segment any more, is closed. Close
// has written all of them to the shadow, so that must not be reset: it would discard them.
func TestCloseAbandoned(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	shadow, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer shadow.Close()
	c, err := NewConn(shadow, false, Config{Off: true})
	if err != nil {
		t.Fatal(err)
	}
	resets := func() (is bool) {
		raw, err := shadow.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var l *unix.Linger
		if ctlErr := raw.Control(func(fd uintptr) { l, err = unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER) }); ctlErr != nil || err != nil {
			t.Fatal(ctlErr, err)
		}
		return l.Onoff != 0 && l.Linger == 0
	}
	c.tx.guard.on = true
	if c.abandoned(); !resets() {
		t.Error("bytes are missing, and the shadow would end well")
	}
	c.mu.Lock()
	c.closed = true // as by Close, which then writes the rest
	c.mu.Unlock()
	if c.unguard(); resets() {
		t.Error("all is written, and the shadow would be reset")
	}
}

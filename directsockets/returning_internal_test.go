package directsockets

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// onTCP is a connection without segment, and its peer.
func onTCP(t *testing.T) (c *Conn, peer net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	shadow, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if peer, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	if c, err = NewConn(shadow, false, Config{Off: true}); err != nil {
		t.Fatal(err)
	}
	return c, peer
}

// Raw calls that wait on the shadow end with Close, though it has something left.
func TestRawOutlive(t *testing.T) {
	c, peer := onTCP(t)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, 32<<20) // more than the buffers take
	waiting := make(chan struct{}, 2)
	over := make(chan error, 3)
	for _, call := range []func(func(uintptr) bool) error{raw.Read, raw.Write} {
		go func() {
			first := true
			over <- call(func(fd uintptr) bool {
				if first {
					waiting <- struct{}{}
					first = false
				}
				return false
			})
		}()
	}
	<-waiting
	<-waiting
	c.mu.Lock() // as finalize does
	c.rx.flags.Or(flagClosed)
	c.tx.flags.Or(flagClosed)
	c.mu.Unlock()
	c.lingerShadow(0) // as takeRest does
	if err := c.closeShadow(rest, -1); err != nil {
		t.Error(err)
	}
	c.clearWake(&c.rx.half) // as a call that was woken just before
	go func() {
		_, err := c.shadow.Read(make([]byte, 1)) // as a raw Read that was about to wait
		over <- err
	}()
	for range 3 {
		select {
		case err := <-over:
			if !errors.Is(err, net.ErrClosed) && !isTimeout(err) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a raw call waits for the peer to read")
		}
	}
	if n, err := io.Copy(io.Discard, peer); err != nil || n != int64(len(rest)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	peer.Close()
}

// What a closed connection has left ends with a reset when its peer has taken nothing for so long,
// and with an end of file when it has taken all.
func TestOutlive(t *testing.T) {
	for _, patience := range []time.Duration{time.Millisecond, time.Hour} {
		c, peer := onTCP(t)
		rest := make([]byte, 32<<20) // more than the buffers take
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.lingerShadow(0) // as takeRest does
			c.flushAfterClose(rest, -1, patience)
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
	resets := func() bool { return Resets(t, shadow.(*net.TCPConn)) }
	c.tx.guard.active = true
	if c.armReset(); !resets() {
		t.Error("bytes are missing, and the shadow would end well")
	}
	c.mu.Lock()
	c.closed = true // as by Close, which then writes the rest
	c.mu.Unlock()
	if c.disarmReset(); resets() {
		t.Error("all is written, and the shadow would be reset")
	}
}

package directsockets_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/internal/netns/netnstest"
)

// smallBuffers has the shadow of a pair take little.
func smallBuffers(t *testing.T, conns ...*directsockets.Conn) {
	t.Helper()
	for _, c := range conns {
		tcp := c.Shadow().(*net.TCPConn)
		if err := errors.Join(tcp.SetReadBuffer(4096), tcp.SetWriteBuffer(4096)); err != nil {
			t.Fatal(err)
		}
	}
}

// fallenBack is a direct pair whose receiver s has n bytes unread in the segment and has fallen
// back; c has found that, and cannot write all of them to the shadow.
func fallenBack(t *testing.T, n int64) (c, s *directsockets.Conn) {
	t.Helper()
	c, s = directPair(t)
	smallBuffers(t, c, s)
	if err := writePattern(c, n); err != nil {
		t.Fatal(err)
	}
	go c.Read(make([]byte, 1)) // which hears of it fell back
	if err := s.Demote(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shadow is full", func() bool {
		before := shadowSent(c)
		time.Sleep(20 * time.Millisecond)
		return c.Returning() && before > 0 && before == shadowSent(c)
	})
	return c, s
}

func shadowSent(c *directsockets.Conn) uint64 {
	for name, n := range c.Stats().All() {
		if name == "sent on the shadow" {
			return n
		}
	}
	return 0
}

// TestLeaveReturning: a sender that ends while its bytes return to TCP does not wait, and its
// receiver reads all of them.
func TestLeaveReturning(t *testing.T) {
	netnstest.CheckFDs(t)
	const n = 200_000
	for name, end := range map[string]func(c *directsockets.Conn) error{
		"close":       (*directsockets.Conn).Close,
		"close write": (*directsockets.Conn).CloseWrite,
	} {
		t.Run(name, func(t *testing.T) {
			c, s := fallenBack(t, n)
			before := shadowSent(c)
			if before >= n {
				t.Fatal("the shadow has taken all")
			}
			if err := end(c); err != nil {
				t.Fatal(err)
			}
			s.SetReadDeadline(time.Now().Add(testWait))
			if off, err := readPatternAt(s, 0, 0); err != nil || off != n {
				t.Errorf("%d bytes of %d, %v\n%s", off, n, err, s.Debug())
			}
			s.Write([]byte("x")) // it is TCP's to say what becomes of that
		})
	}
}

// TestLeaveAbandoned: a sender whose receiver has no segment any more cannot leave the rest there.
// If it closes before all is on the shadow, whoever has that reads all the same.
func TestLeaveAbandoned(t *testing.T) {
	const n = 200_000
	for name, linger := range map[string]int{"close": -1, "with a time to linger": 3600} {
		t.Run(name, func(t *testing.T) {
			netnstest.CheckFDs(t)
			c, rest := abandoned(t, n)
			if err := c.SetLinger(linger); err != nil {
				t.Fatal(err)
			}
			closed := make(chan error, 1)
			go func() { closed <- c.Close() }()
			if linger < 0 { // Close does not wait for the reader
				if err := <-closed; err != nil {
					t.Error(err)
				}
				closed <- nil
			}
			b, err := io.ReadAll(rest)
			if err != nil || len(b) != n || !bytes.Equal(b, pattern(n)) {
				t.Errorf("%d bytes of %d, %v", len(b), n, err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLeaveUnread: what such a sender has left ends with the one who does not read it.
func TestLeaveUnread(t *testing.T) {
	netnstest.CheckFDs(t)
	c, rest := abandoned(t, 200_000)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	rest.Close() // leaktest waits for the goroutine that writes
}

// TestLeaveExit: while such a sender has something left, the end of its process resets the
// connection.
func TestLeaveExit(t *testing.T) {
	netnstest.CheckFDs(t)
	c, rest := abandoned(t, 200_000)
	dup, err := c.Shadow().(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for name, err := range map[string]error{"SetNoDelay": c.SetNoDelay(true), "SetKeepAlive": c.SetKeepAlive(true), "SetLinger": c.SetLinger(1),
		"SetReadBuffer": c.SetReadBuffer(4096), "SetDeadline": c.SetDeadline(time.Time{})} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if !directsockets.Resets(t, dup) {
		t.Error("bytes are missing, and the shadow would end well")
	}
	dup.Close()
	c.Abort() // too late: nothing of this connection looks at that any more
	if n, err := io.Copy(io.Discard, rest); err != nil || n != 200_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestLeaveTooMuch: a process keeps only so much for such receivers.
func TestLeaveTooMuch(t *testing.T) {
	netnstest.CheckFDs(t)
	eventually(t, "nothing is left of other tests", func() bool { return directsockets.Orphans() == 0 })
	first, taken := abandoned(t, 200_000)
	second, lost := abandoned(t, 200_000)
	directsockets.LeaveOrphans(t, 200_000)
	before := directsockets.Orphans()
	first.Close()
	second.Close()
	if _, err := io.Copy(io.Discard, lost); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if n, err := io.Copy(io.Discard, taken); err != nil || n != 200_000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	eventually(t, "nothing is left", func() bool { return directsockets.Orphans() == before })
}

// TestLeaveAbandonedReset: SetLinger(0) resets such a connection.
func TestLeaveAbandonedReset(t *testing.T) {
	netnstest.CheckFDs(t)
	c, rest := abandoned(t, 200_000)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := io.Copy(io.Discard, rest); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// abandoned is fallenBack whose receiver has left the segment since, as a program does that is
// replaced by one without the library: rest is all that is left of it.
func abandoned(t *testing.T, n int64) (c *directsockets.Conn, rest net.Conn) {
	t.Helper()
	c, s := fallenBack(t, n)
	// As a program that has the descriptor, and no library.
	dup, err := s.Shadow().(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer dup.Close()
	if rest, err = net.FileConn(dup); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rest.Close() })
	s.Retire()
	rest.SetReadDeadline(time.Now().Add(testWait))
	return c, rest
}

// TestLeaveReset: SetLinger(0) resets the connection.
func TestLeaveReset(t *testing.T) {
	netnstest.CheckFDs(t)
	c, s := fallenBack(t, 200_000)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.SetReadDeadline(time.Now().Add(testWait))
	if off, err := readPatternAt(s, 0, 0); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %d bytes: %v\n%s", off, err, s.Debug())
	}
}

// TestKillFallenBack: a sender that is killed before it has looked at FALLEN_BACK has lost nothing.
func TestKillFallenBack(t *testing.T) {
	client := startBroker(t)
	for range 3 {
		c, kid := withChild(t, client, "source", 0)
		off := int64(0)
		eventually(t, "direct", func() bool {
			n, err := readPatternAt(c, off, 1<<18)
			if off += n; err != nil {
				t.Fatal(err)
			}
			return c.Stats().RX == directsockets.ModeDirect
		})
		eventually(t, "much is unread", func() bool { return c.Unread() > 500_000 })
		if err := kid.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := c.Demote(); err != nil {
			t.Fatal(err)
		}
		left := int64(c.Unread())
		c.SetReadDeadline(time.Now().Add(testWait))
		time.AfterFunc(10*time.Millisecond, func() { kid.cmd.Process.Kill() }) // while Read waits, or before
		n, err := readPatternAt(c, off, 0)
		if err != nil && !gone(err) || n < left {
			t.Errorf("%d bytes of %d, %v\n%s", n, left, err, c.Debug())
		}
	}
}

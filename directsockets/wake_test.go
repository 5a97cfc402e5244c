package directsockets_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// within fails unless f returns.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(testWait):
		t.Fatal("it hangs")
	}
}

// fill writes until the peer, who does not read, leaves no room, and returns how much.
func fill(t *testing.T, c *directsockets.Conn) int {
	t.Helper()
	p := make([]byte, 64<<20)
	n, some := 0, 1
	for some > 0 { // not the time says that it is full
		if err := c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		var err error
		if some, err = c.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("it takes everything:", err)
		}
		n += some
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return n
}

// Whatever ends or interrupts a wait does so also when it comes between the waiter's
// last look at it and its sleep (model_test.go has all orders; this is the connection).
func TestNoWaitAfterSignal(t *testing.T) {
	must := func(t *testing.T, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	past := time.Unix(1, 0)
	t.Run("read", func(t *testing.T) {
		for name, signal := range map[string]func(t *testing.T, c *directsockets.Conn){
			"CloseRead":       func(t *testing.T, c *directsockets.Conn) { must(t, c.CloseRead()) },
			"SetReadDeadline": func(t *testing.T, c *directsockets.Conn) { must(t, c.SetReadDeadline(past)) },
			"SetDeadline":     func(t *testing.T, c *directsockets.Conn) { must(t, c.SetDeadline(past)) },
		} {
			t.Run(name, func(t *testing.T) {
				c, _ := directPair(t)
				within(t, func() { c.SleepRX(func() { signal(t, c) }) })
			})
		}
	})
	t.Run("write", func(t *testing.T) {
		for name, signal := range map[string]func(t *testing.T, c *directsockets.Conn){
			"CloseWrite":       func(t *testing.T, c *directsockets.Conn) { must(t, c.CloseWrite()) },
			"SetWriteDeadline": func(t *testing.T, c *directsockets.Conn) { must(t, c.SetWriteDeadline(past)) },
		} {
			for _, finishing := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					c, _ := directPair(t)
					fill(t, c)
					within(t, func() { c.SleepTX(finishing, func() { signal(t, c) }) })
				})
			}
		}
	})
}

// Who takes a region's descriptor reads the doorbell, and has a Write that sleeps look again: what
// was read may have been for it, and the runtime's poller tells nobody of a byte that is gone.
func TestRegionTellsWriter(t *testing.T) {
	c, s := directPair(t)
	fill(t, c)
	wrote := make(chan error, 1)
	go func() { _, err := c.Write([]byte{1}); wrote <- err }()
	eventually(t, "Write sleeps", c.SleepsTX)
	before := counter(c, segment.Sleeps)
	b, err := directsockets.NewBuffer(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := s.PostBuffer(b, 0, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Write looks again", func() bool { return counter(c, segment.Sleeps) > before })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-wrote; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// CloseRead ends a Read that spins: what it looks at before it spins is looked at again.
func TestCloseReadWhileSpinning(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true, Spin: testWait}
	for range 10 { // who shares a CPU with its peer does not spin
		c, s := pair(t, cfg, cfg)
		makeDirect(t, c, s)
		within(t, func() {
			ended := make(chan error, 1)
			go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
			eventually(t, "it reads", c.Reading)
			if err := c.CloseRead(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// CloseRead ends every kind of read, also one that begins after it.
func TestCloseReadEndsAll(t *testing.T) {
	for name, read := range map[string]func(c *directsockets.Conn) error{
		"Read":    func(c *directsockets.Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"WriteTo": func(c *directsockets.Conn) error { _, err := c.WriteTo(io.Discard); return err },
		"ReadBuffer": func(c *directsockets.Conn) error {
			b, err := directsockets.NewBuffer(4096)
			if err != nil {
				return err
			}
			defer b.Close()
			_, err = c.ReadBuffer(b, 0, 4096)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := directPair(t)
			if err := c.CloseRead(); err != nil {
				t.Fatal(err)
			}
			within(t, func() {
				if err := read(c); err != io.EOF && !(name == "WriteTo" && err == nil) {
					t.Error(err)
				}
			})
		})
	}
}

// Demote does not wait for the peer, also while CloseWrite's end waits for room, and the
// peer gets everything, and the end.
func TestDemoteWhileEnding(t *testing.T) {
	c, s := directPair(t)
	sent := fill(t, c)
	within(t, func() {
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
		if err := c.Demote(); err != nil {
			t.Error(err)
		}
	})
	within(t, func() {
		n, err := io.Copy(io.Discard, s)
		if err != nil || n != int64(sent) {
			t.Errorf("%d of %d bytes, %v", n, sent, err)
		}
	})
}

// A deadline that has passed ends the program's calls, not what CloseWrite has begun.
func TestCloseWriteAfterDeadline(t *testing.T) {
	c, s := directPair(t)
	fill(t, c)
	if err := c.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	within(t, func() {
		if _, err := io.Copy(io.Discard, s); err != nil {
			t.Error(err)
		}
	})
}

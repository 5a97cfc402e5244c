package directsockets_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/segment"
	"exnet/internal/netns/netnstest"
	"exnet/internal/shm"
)

// withChild has a child connect, and do something with the connection.
func withChild(t *testing.T, client *client.Client, order string, n int64) (*directsockets.Conn, *child) {
	t.Helper()
	kid := startChild(t, childJob{Broker: brokerPath(t, client), Eager: true}, nil)
	lc := directsockets.ListenConfig{Config: directsockets.Config{Broker: client}}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	waitListener(t, client, l.Addr())
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	kid.tell(t, childOrder{Do: order, Dial: l.Addr().String(), N: n})
	c := (<-accepted).(*directsockets.Conn)
	t.Cleanup(func() { c.Close() })
	return c, kid
}

// gone reports whether an error is what TCP has for a peer that was killed.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// TestKillSender: its receiver gets what came, in order, and then an end.
func TestKillSender(t *testing.T) {
	client := startBroker(t)
	for range 5 {
		c, kid := withChild(t, client, "source", 0)
		off := int64(0)
		eventually(t, "direct", func() bool {
			n, err := readPatternAt(c, off, 1<<20)
			if off += n; err != nil {
				t.Fatal(err)
			}
			return c.Stats().RX == directsockets.ModeDirect
		})
		if err := kid.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(testWait))
		n, err := readPatternAt(c, off, 0) // what had come is right to its last byte
		if err != nil && !gone(err) {
			t.Errorf("after %d bytes: %v\n%s", off+n, err, c.Debug())
		}
	}
}

// TestKillReceiver: its sender hears of it, also when it sleeps.
func TestKillReceiver(t *testing.T) {
	client := startBroker(t)
	for _, order := range []string{"sink", "hang"} {
		t.Run(order, func(t *testing.T) {
			c, kid := withChild(t, client, order, 0)
			if order == "hang" {
				eventually(t, "direct", func() bool {
					var buf [1]byte
					if _, err := c.Write([]byte{1}); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf[:]); err != nil {
						t.Fatal(err)
					}
					return c.Stats().Direct()
				})
				c.Write([]byte{0}) // from now on it hangs
			}
			sent := make(chan error, 1)
			go func() { sent <- writePattern(c, 0) }()
			if order == "sink" {
				eventually(t, "much has been sent", func() bool { return counter(c, segment.SentDirect) > 10<<20 })
			} else {
				eventually(t, "the sender sleeps", func() bool {
					before := counter(c, segment.SentDirect)
					time.Sleep(10 * time.Millisecond)
					return before > 500_000 && counter(c, segment.SentDirect) == before
				})
			}
			if err := kid.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-sent:
				if !gone(err) {
					t.Error(err)
				}
			case <-time.After(testWait):
				t.Fatal("Write does not end")
			}
			var buf [1]byte
			c.SetReadDeadline(time.Now().Add(testWait))
			if _, err := c.Read(buf[:]); !gone(err) {
				t.Error(err)
			}
		})
	}
}

// TestKillReceiverOfShortMessages: who only sends, and little, hears of it as on TCP: the first
// send after it may be taken, and its loss is told to the one after that.
func TestKillReceiverOfShortMessages(t *testing.T) {
	c, kid := withChild(t, startBroker(t), "sink", 0)
	eventually(t, "direct", func() bool {
		if _, err := c.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		return c.Stats().TX == directsockets.ModeDirect
	})
	if err := kid.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = kid.cmd.Wait() // killed
	const most = 2     // direct, and by the shadow, which answers
	for n := 0; ; n++ {
		time.Sleep(30 * time.Millisecond) // it looks again by then
		_, err := c.Write(make([]byte, 64))
		if gone(err) {
			break
		}
		if err != nil || n == most && shm.Ticks() != 0 || n > 100 {
			t.Fatalf("send %d: %v", n, err)
		}
	}
}

// TestStop: a peer that is stopped costs its sender no more than a deadline.
func TestStop(t *testing.T) {
	client := startBroker(t)
	c, kid := withChild(t, client, "sink", 0)
	eventually(t, "direct", func() bool {
		if err := writePattern(c, 1<<20); err != nil {
			t.Fatal(err)
		}
		return c.Stats().TX == directsockets.ModeDirect
	})
	if err := kid.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if err := writePattern(c, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if err := kid.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.SetWriteDeadline(time.Time{})
	if err := writePattern(c, 5<<20); err != nil {
		t.Error(err)
	}
	if got := c.Stats(); got.TX != directsockets.ModeDirect {
		t.Error(got)
	}
}

// TestBrokerDies: connections live, new ones are TCP, and direct when there is a
// broker again.
func TestBrokerDies(t *testing.T) {
	netnstest.CheckFDs(t)
	path := filepath.Join(t.TempDir(), "broker.sock")
	stop := runBroker(t, path)
	cfg := directsockets.Config{Broker: dialBroker(t, path), Eager: true}
	p := newPairs(t, cfg)
	c, s := p.next(t)
	defer c.Close()
	defer s.Close()
	makeDirect(t, c, s)
	stop()
	eventually(t, "the client has heard", func() bool { return !cfg.Broker.Connected() })
	if err := transfer(c, s, 3<<20, []int{70_000, 10}, nil, nil); err != nil {
		t.Error(err)
	}
	if !c.Stats().Direct() && c.Stats().RX != directsockets.ModeDirect {
		t.Error(c.Stats())
	}
	c2, s2 := p.next(t)
	if err := transfer(c2, s2, 3<<20, []int{70_000, 10}, nil, nil); err != nil {
		t.Error(err)
	}
	if got := c2.Stats(); got.TX != directsockets.ModeTCP || got.Reason != directsockets.ReasonNoBroker {
		t.Error(got)
	}
	c2.Close()
	s2.Close()
	stop = runBroker(t, path)
	defer stop()
	waitListener(t, cfg.Broker, p.l.Addr())
	c3, s3 := p.next(t)
	makeDirect(t, c3, s3)
	c3.Close()
	s3.Close()
}

// TestNoDescriptors: a connection that gets no more than its socket stays TCP, and
// says why.
func TestNoDescriptors(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	p := newPairs(t, cfg)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = 256
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	for left := 2; left < 10; left++ {
		var fill []int
		for {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				break
			}
			fill = append(fill, fd)
		}
		for _, fd := range fill[:left] {
			unix.Close(fd)
		}
		func() {
			defer func() {
				for _, fd := range fill[left:] {
					unix.Close(fd)
				}
			}()
			// The client or the broker may have taken the one that the server's socket needs.
			c, s := p.nextOr(t, func(err error) {
				if !errors.Is(err, unix.EMFILE) {
					t.Fatal(err)
				}
				fill = fill[:len(fill)-1]
				unix.Close(fill[:len(fill)+1][len(fill)])
			})
			defer c.Close()
			defer s.Close()
			for range 20 {
				for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
					if _, err := way[0].Write([]byte("hello")); err != nil {
						t.Error(left, err)
					}
					if _, err := io.ReadFull(way[1], make([]byte, 5)); err != nil {
						t.Error(left, err)
					}
				}
			}
			if err := transfer(c, s, 1<<20, []int{70_000, 10}, nil, nil); err != nil {
				t.Errorf("%d descriptors left: %v", left, err)
			}
			t.Logf("%d descriptors left: %v; %v", left, c.Stats(), s.Stats())
			if left == 2 && c.Stats().TX == directsockets.ModeDirect {
				t.Error("direct without descriptors")
			}
		}()
	}
}

// TestCloseReset: unread bytes, or SetLinger(0), reset the connection, as with TCP.
func TestCloseReset(t *testing.T) {
	for name, mk := range kinds(t) {
		for _, how := range []string{"unread", "linger"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				c, s := mk(t)
				if _, err := c.Write([]byte("unread")); err != nil {
					t.Fatal(err)
				}
				if how == "linger" {
					if _, err := io.ReadFull(s, make([]byte, 6)); err != nil {
						t.Fatal(err)
					}
					if err := s.SetLinger(0); err != nil {
						t.Fatal(err)
					}
				} else if _, err := io.ReadFull(s, make([]byte, 2)); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				c.SetDeadline(time.Now().Add(testWait))
				if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Error(n, err)
				}
				var err error
				for range 3 { // TCP says it once, and then EPIPE
					if _, err = c.Write([]byte("x")); err != nil {
						break
					}
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Error(err)
				}
			})
		}
	}
}

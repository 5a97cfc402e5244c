package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var errSleptTooLong = errors.New("slept too long: a wake-up was lost")

// await waits on the doorbell unless there is something already. It is for an end
// with one sleeper.
func await(e *End, arm func() bool) error {
	if arm() {
		return nil
	}
	defer e.Awake()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(e.bell), Events: unix.POLLIN}}, 120000)
		switch {
		case err == unix.EINTR:
		case n == 0:
			return errSleptTooLong
		default:
			return err
		}
	}
}

func sendAsleep(e *End, p []byte) error {
	for len(p) > 0 {
		n, err := e.Send(p)
		p = p[n:]
		if err == ErrAgain {
			err = await(e, e.ArmTX)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func recvAsleep(e *End, p []byte) (int, error) {
	for {
		n, err := e.Recv(p)
		if err != ErrAgain {
			return n, err
		}
		if err := await(e, e.ArmRX); err != nil {
			return 0, err
		}
	}
}

// Both ends sleep whenever they can, in two goroutines, with both variants of the
// barrier and with few slots; what arrives is what was sent.
func TestSleepers(t *testing.T) {
	for _, expedited := range []bool{true, false} {
		for _, large := range []bool{true, false} {
			t.Run(fmt.Sprintf("expedited=%v/large=%v", expedited, large), func(t *testing.T) {
				c, s := promoted(t, Config{Slots: 16, Ring: minRing})
				if !expedited {
					c.relation.Store(relationFence)
					s.relation.Store(relationFence)
				} else if c.relation.Load() != relationExpedited {
					t.Skip("this kernel has no membarrier")
				}
				size := 2 << 20
				most := 100
				if large {
					size, most = 32<<20, 100000
				}
				if testing.Short() {
					size /= 8
				}
				data := pattern(size, 1)
				failed := make(chan error, 1)
				go func() {
					rng := rand.New(rand.NewPCG(1, 2))
					for rest := data; len(rest) > 0; {
						n := min(len(rest), 1+rng.IntN(most))
						if err := sendAsleep(c, rest[:n]); err != nil {
							failed <- err
							return
						}
						rest = rest[n:]
					}
					err := c.Shutdown()
					for err == ErrAgain {
						if err = await(c, c.ArmTX); err == nil {
							err = c.Shutdown()
						}
					}
					failed <- err
				}()
				var got bytes.Buffer
				rng := rand.New(rand.NewPCG(3, 4))
				buf := make([]byte, most)
				for {
					n, err := recvAsleep(s, buf[:1+rng.IntN(most)])
					got.Write(buf[:n])
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := <-failed; err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), data) {
					t.Fatal(got.Len(), "bytes, or others")
				}
				t.Logf("rung %d times for messages, %d times for space", c.count[WakeUps].Load(), s.count[WakeUps].Load())
			})
		}
	}
}

// serveAsleep echoes, and sleeps whenever it can. It is a process of its own.
func serveAsleep(e *End, size int) error {
	buf := make([]byte, size)
	for {
		n, err := recvAsleep(e, buf)
		if err == nil {
			err = sendAsleep(e, buf[:n])
		}
		if err != nil {
			return over(err)
		}
	}
}

// Two processes, both of which sleep for each message.
func TestProcesses(t *testing.T) {
	e := spawn(t, "sleep 100000", Config{}, Tuning{})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		p := pattern(1+rng.IntN(1<<rng.IntN(17)), uint64(i))
		if err := sendAsleep(e, p); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(p))
		for n := 0; n < len(p); {
			k, err := recvAsleep(e, got[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		if !bytes.Equal(got, p) {
			t.Fatal("message", i)
		}
	}
	if e.relation.Load() == relationUnknown {
		t.Error("not attached")
	}
}

// A peer that is killed: what it had sent is read, then ErrClosed; nobody hangs.
func TestKilledPeer(t *testing.T) {
	c, s := looseEnds(t, Config{})
	defer c.seg.Retire()
	defer s.seg.Retire()
	defer c.Close(false)
	theirs, err := unix.Dup(s.bell)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=hello 5:0:0")
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(mustDup(t, c.seg.Fd())), "segment"), os.NewFile(uintptr(theirs), "bell")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	s.Close(false)
	s.own.attention.Store(0) // it was for the process to be here
	end := time.Now().Add(3 * time.Minute)
	for c.Promote(0) == ErrAgain && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	for {
		if _, ok := c.PromotedAt(); ok {
			break
		}
		if err := await(c, c.ArmRX); err != nil {
			t.Fatal(err)
		}
	}
	for c.Readable() < 5 {
		time.Sleep(time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	buf := make([]byte, 10)
	if n, err := recvAsleep(c, buf); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := recvAsleep(c, buf); n != 0 || err != ErrClosed {
		t.Fatal(n, err)
	}
	if err := sendAsleep(c, make([]byte, 10<<20)); err != ErrClosed {
		t.Fatal(err)
	}
}

// Who only sends, and never sleeps, finds within so many messages, or by the time that these take,
// that the peer is gone.
func TestKilledPeerOfSender(t *testing.T) {
	c, s := promoted(t, Config{})
	sends := map[string]func() error{
		"Send":    func() error { _, err := c.Send([]byte("x")); return err },
		"Reserve": func() error { _, err := c.Reserve(100); return err },
	}
	for what, send := range sends {
		if err := send(); err != nil {
			t.Fatal(what, err)
		}
	}
	if err := s.Close(false); err != nil {
		t.Fatal(err)
	}
	s.own.attention.Store(0) // it had no time to say so
	for what, send := range sends {
		c.gone.Store(false)
		for n := 0; ; n++ {
			c.tx.looked = 0 // long ago
			if err := send(); err == ErrClosed {
				break
			} else if err != nil || n > lookAfter {
				t.Fatalf("%s, after %d: %v", what, n, err)
			}
		}
	}
}

func mustDup(tb testing.TB, fd int) int {
	tb.Helper()
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return fd
}

// TestDue: bytes may stay in the doorbell for some armings, and the end is seen behind them.
func TestDue(t *testing.T) {
	c, s := looseEnds(t, Config{})
	defer c.seg.Retire()
	defer s.seg.Retire()
	defer c.Close(false)
	if c.Due() || c.unread < 1 || c.unread > maxUnread {
		t.Fatalf("due, or %d armings left unread", c.unread)
	}
	for i := range c.unread {
		c.armFlag(armRX)
		for range 4 { // twice what a peer rings
			s.ringBell()
		}
		if c.Due() {
			t.Fatalf("due after %d armings", i+1)
		}
	}
	c.armFlag(armRX)
	if !c.Due() {
		t.Error("not due after one more")
	}
	c.Awake()
	if c.Due() {
		t.Error("due, and it was read")
	}
	s.ringBell()
	s.Close(false)
	if !c.Due() {
		t.Error("the peer is gone, and nothing is due")
	}
}

// Where the doorbell takes few bytes they are read each time.
func TestUnreadOfSmall(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil {
		t.Fatal(err)
	}
	if n := unreadOf(fds[0]); n > 1 {
		t.Errorf("%d armings left unread", n)
	}
}

package segment

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// A test binary that finds this variable is the server's process: role:size.
const roleVariable = "EXNET_SEGMENT_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := serve(role); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pin keeps the calling goroutine on a CPU; modulo those that there are.
func pin(cpu int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	_ = unix.SchedSetaffinity(0, &set) // else the figures are worse
}

// spawn starts a process that is the server, on another CPU than this goroutine,
// which is the client.
func spawn(tb testing.TB, role string, c Config, t Tuning) *End {
	tb.Helper()
	seg, err := Create(Info{Nonce: NewNonce(), Client: netip.MustParseAddrPort("10.0.0.1:40000"),
		Server: netip.MustParseAddrPort("10.0.0.2:80")}, c)
	if err != nil {
		tb.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	e, err := NewEnd(seg, Client, bells[0], nil)
	if err != nil {
		tb.Fatal(err)
	}
	e.Tune(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d:%d", roleVariable, role, t.Threshold, t.Chunk))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(mustDup(tb, seg.Fd())), "segment"), os.NewFile(uintptr(bells[1]), "bell")}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	pin(0)
	tb.Cleanup(func() {
		e.Close(false)
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
		seg.Retire()
	})
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
		if err := e.Promote(0); err == nil {
			break
		} else if err != ErrAgain || time.Now().After(end) {
			tb.Fatal(err)
		}
	}
	for {
		if _, ok := e.PromotedAt(); ok {
			return e
		}
	}
}

func serve(role string) error {
	var kind string
	var size int
	var t Tuning
	if _, err := fmt.Sscanf(role, "%s %d:%d:%d", &kind, &size, &t.Threshold, &t.Chunk); err != nil {
		return err
	}
	seg, err := Map(3)
	if err != nil {
		return err
	}
	e, err := NewEnd(seg, Server, 4, nil)
	if err != nil {
		return err
	}
	e.Tune(t)
	pin(1)
	if err := e.Attach(); err != nil {
		return err
	}
	if err := e.Promote(0); err != nil {
		return err
	}
	for {
		if _, ok := e.PromotedAt(); ok {
			break
		}
	}
	buf := make([]byte, size)
	switch kind {
	case "echo":
		for {
			if err := recvFull(e, buf); err != nil {
				return over(err)
			}
			if err := sendFull(e, buf); err != nil {
				return over(err)
			}
		}
	case "sleep":
		return serveAsleep(e, size)
	case "hello": // and then nothing
		if err := sendFull(e, buf); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	case "share": // the client's CPU
		pin(0)
		for {
			if _, err := e.Recv(buf); err == ErrAgain {
				unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			} else if err != nil {
				return over(err)
			}
		}
	case "take":
		for {
			if _, err := recvSome(e, buf); err != nil {
				return over(err)
			}
		}
	case "lend":
		for {
			b, err := e.Next()
			if err == ErrAgain {
				shm.Pause(1)
				continue
			}
			if err != nil {
				return over(err)
			}
			e.Release(b.Len())
		}
	}
	return errors.New(kind)
}

func over(err error) error {
	if err == ErrClosed || err == io.EOF {
		return nil
	}
	return err
}

func recvSome(e *End, p []byte) (int, error) {
	for {
		if n, err := e.Recv(p); err != ErrAgain {
			return n, err
		}
		e.SpinRX(100)
	}
}

func recvFull(e *End, p []byte) error {
	for len(p) > 0 {
		n, err := recvSome(e, p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func sendFull(e *End, p []byte) error {
	for len(p) > 0 {
		n, err := e.Send(p)
		if err != nil && err != ErrAgain {
			return err
		}
		if n == 0 {
			shm.Pause(1)
		}
		p = p[n:]
	}
	return nil
}

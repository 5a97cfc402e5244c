package agent

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/logger"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"

	"golang.org/x/sys/unix"
)

// ownRunEnv says that this process has a /run of its own.
const ownRunEnv = "EXNET_AGENT_TEST_RUN"

// ownRun runs the test again, in a process that has a /run of its own, and so a door that no other
// agent of this host has. false: that was done, and the caller has nothing left to do.
func ownRun(t *testing.T) bool {
	t.Helper()
	netnstest.Require(t)
	if os.Getenv(ownRunEnv) != "" {
		if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
			t.Fatal(err)
		}
		if err := broker.Keep(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=8m")
	cmd.Env = append(os.Environ(), ownRunEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v:\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name()+" ")):
		t.Skipf("%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")):
		t.Fatalf("it did not run:\n%s", out)
	}
	return false
}

// A program that starts is known at once: this agent does not look again.
func TestRootDoor(t *testing.T) {
	if !ownRun(t) {
		return
	}
	l := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: t.TempDir(), door: broker.DoorPath, every: 24 * time.Hour}
	l.build()
	l.start()
	for i, as := range []language{inC, inGo} {
		l.waits = true // so that the agent sees the process before it connects to the door
		l.chat(l.b, as, "server", "172.30.0.3", 8080+i)
		l.becomesDirect(l.a, l.chat(l.a, as, "client", "172.30.0.3", 8080+i))
	}
	// The next agent has the door, too, whatever the one before it has left.
	l.halt()
	if _, err := os.Stat(broker.DoorPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", broker.DoorPath, err)
	}
}

// traced runs a client that makes three connections, and returns its calls that connect to the
// door.
func (l *lab) traced(as language, port int) (calls []string) {
	t := l.t
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is missing")
	}
	cmd := l.program(as, "client", "172.30.0.3", port)
	file := filepath.Join(t.TempDir(), "calls")
	args := []string{"-ff", "-o", file, "-e", "trace=connect"} // a file for each thread: no line is split
	for _, v := range cmd.Env[len(os.Environ()):] {
		args = append(args, "-E", v) // strace itself has no library
	}
	traced := exec.Command(strace, append(append(args, cmd.Path), cmd.Args[1:]...)...)
	traced.Env, traced.Stdin = os.Environ(), strings.NewReader("open\nask 20 60\nopen\nask 20 60\nopen\nask 20 60\n")
	out, err := func() ([]byte, error) {
		var out bytes.Buffer
		traced.Stdout, traced.Stderr = &out, &out
		err := l.a.Run(traced)
		return out.Bytes(), err
	}()
	if err != nil || strings.Count(string(out), "ok\n") != 6 {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := filepath.Glob(file + ".*")
	if err != nil || len(files) == 0 {
		t.Fatalf("strace wrote nothing: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, broker.DoorPath) {
				calls = append(calls, strings.TrimSpace(line))
			}
		}
	}
	return calls
}

// Where no agent is, or one that answers nobody, a program asks once at the most, and goes on.
func TestRootDoorOfNobody(t *testing.T) {
	if !ownRun(t) {
		return
	}
	l := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: t.TempDir()}
	l.build()
	for i, tt := range []struct {
		name      string
		inC, inGo string // what the calls that connect say
		make      func()
	}{
		{"no agent", "", "ENOENT", func() {}},
		{"a dead one's", "ECONNREFUSED", "ECONNREFUSED", func() { unix.Close(listener(t)) }},
		{"a stalled one's", "EAGAIN", "EAGAIN", func() {
			ln := listener(t)
			t.Cleanup(func() { unix.Close(ln) })
			for connect(t) == nil {
			}
		}},
	} {
		tt.make()
		for k, as := range []language{inC, inGo} {
			port := 8080 + 2*i + k
			l.chat(l.b, as, "server", "172.30.0.3", port)
			want := tt.inGo
			if as == inC {
				want = tt.inC
			}
			calls := l.traced(as, port)
			if want == "" && len(calls) > 0 || want != "" && (len(calls) != 1 || !strings.Contains(calls[0], want)) {
				t.Errorf("%s, %v: the program called %q, want one call that says %q", tt.name, as, calls, want)
			}
		}
	}
}

// listener makes a door of which nobody accepts.
func listener(t *testing.T) int {
	t.Helper()
	_ = os.Remove(broker.DoorPath) // the one before
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: broker.DoorPath}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	return fd
}

// connect knocks at the door.
func connect(t *testing.T) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return unix.Connect(fd, &unix.SockaddrUnix{Name: broker.DoorPath})
}

// The first program of a namespace connects before the agent that it has told of itself has made a
// broker: the same connection becomes direct once there is one. The agent is a stub, which comes
// when the connection has been used.
func TestRootDoorLate(t *testing.T) {
	if !ownRun(t) {
		return
	}
	l := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: t.TempDir()}
	l.build()
	ln := listener(t)
	defer unix.Close(ln)
	heard := func() {
		t.Helper()
		fd, _, err := unix.Accept(ln)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	l.chat(l.a, inGo, "server", "172.30.0.2", 8080)
	heard()
	c := l.chat(l.a, inC, "client", "172.30.0.2", 8080)
	heard()
	for _, what := range []string{"open", "ask 1 60"} {
		if got := c.do("%s", what); got != "ok" {
			t.Fatal(what, ": ", got)
		}
	}
	s, err := broker.New(broker.Config{In: l.a.Do, Log: logger.Discard{}})
	if err != nil {
		t.Fatal(err)
	}
	teller, err := control.NewTeller(s, control.Whose{Name: "late"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	defer func() {
		if err := errors.Join(teller.Close(), s.Close(), <-ended); err != nil {
			t.Error(err)
		}
	}()
	l.within(timeLimit, "the connection is direct", func() bool {
		if got := c.do("ask 20 60"); got != "ok" {
			t.Fatal("ask: ", got)
		}
		x := l.last(l.a)
		return x != nil && x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0
	})
}

// Who connects without end keeps nobody else away: the next look finds what the door does not hear.
func TestRootDoorFlood(t *testing.T) {
	if !ownRun(t) {
		return
	}
	l := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: t.TempDir(), door: broker.DoorPath}
	l.build()
	l.start()
	l.see(os.Getpid()) // whose namespace no broker has, as it does not ask
	end := make(chan struct{})
	var flood sync.WaitGroup
	for range 2 {
		flood.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if c, err := net.Dial(client.Network, broker.DoorPath); err == nil {
					c.Close()
				}
			}
		})
	}
	defer flood.Wait()
	defer close(end)
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	l.becomesDirect(l.a, l.chat(l.a, inGo, "client", "172.30.0.3", 8080))
}

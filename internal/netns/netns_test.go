package netns_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

// roleEnv makes the test program play a part in another process's test.
const (
	roleEnv = "EXNET_NETNS_ROLE"
	argEnv  = "EXNET_NETNS_ARG"
)

func playRole(role string) int {
	if role == "userns" {
		return inUserNS(os.Getenv(argEnv))
	}
	return 2
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(playRole(role))
	}
	leaktest.Main(m)
}

// here is the network namespace of the calling thread.
func here(t testing.TB) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// processNS is the namespace of the main thread, which others see.
func processNS(t testing.TB) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestRootDo(t *testing.T) {
	netnstest.CheckFDs(t)
	a, b := netnstest.New(t), netnstest.New(t)
	host := here(t)

	seen := make(map[string]bool)
	for _, n := range []*netns.NS{a, b} {
		err := n.Do(func() error {
			seen[here(t)] = true
			links, err := net.Interfaces()
			if err == nil && (len(links) != 1 || links[0].Name != "lo") {
				err = fmt.Errorf("interfaces %v, want lo alone", links)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 2 || seen[host] {
		t.Errorf("namespaces %v, want two others than %s", seen, host)
	}
	if got := here(t); got != host {
		t.Errorf("back in %s, want %s", got, host)
	}
}

func TestRootDoReturnsTheError(t *testing.T) {
	n := netnstest.New(t)
	want := errors.New("of f")
	if err := n.Do(func() error { return want }); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// A function that ends its goroutine (t.FailNow) must not hang its caller.
func TestRootDoGoexit(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	if err := n.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("no error from a function that did not return")
	}
}

// No goroutine may ever run on a thread that was left in a namespace, and the
// main thread, which others see as the process, must stay where it is.
func TestRootThreadsStayHome(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	host := here(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			if err := n.Do(func() error {
				if i%7 == 0 {
					runtime.Goexit()
				}
				if got := here(t); got == host {
					return errors.New("Do ran at home")
				}
				return nil
			}); err != nil && i%7 != 0 {
				t.Error(err)
			}
		}()
		go func() {
			defer wg.Done()
			if got := here(t); got != host {
				t.Errorf("a goroutine runs in %s, want %s", got, host)
			}
			if got := processNS(t); got != host {
				t.Errorf("the process shows %s, want %s", got, host)
			}
		}()
	}
	wg.Wait()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if link, err := os.Readlink(task); err == nil && link != host {
			t.Errorf("thread %s is in %s, want %s", task, link, host)
		}
	}
}

// A socket stays in the namespace that it was made in.
func TestRootSocketStays(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	if out, err := run(t, n, "ip", "link", "set", "lo", "up"); err != nil {
		t.Fatal(err, out)
	}
	var ln net.Listener
	if err := n.Do(func() (err error) { ln, err = net.Listen("tcp", "127.0.0.1:0"); return }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial := func() error {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), 30*time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(); err == nil {
		t.Error("reached the listener from the host")
	}
	if err := n.Do(dial); err != nil {
		t.Error(err)
	}
}

func TestRootStart(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	var inside string
	if err := n.Do(func() error { inside = here(t); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		argv []string
		want string
	}{
		{"namespace", []string{"readlink", "/proc/self/ns/net"}, inside},
		{"sys", []string{"ls", "/sys/class/net"}, "lo"},
		{"ip", []string{"ip", "-o", "-s", "link"}, "1: lo:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := run(t, n, tt.argv...)
			if err != nil || !strings.HasPrefix(out, tt.want) || strings.Contains(out, "eth0") {
				t.Errorf("%v: %v\n%s\nwant %q", tt.argv, err, out, tt.want)
			}
		})
	}
	t.Run("host's sys is untouched", func(t *testing.T) {
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(mounts, []byte(" /sys sysfs ")); n != 1 {
			t.Errorf("%d mounts on /sys", n)
		}
	})
	t.Run("exit status", func(t *testing.T) {
		var exit *exec.ExitError
		if _, err := run(t, n, "sh", "-c", "exit 3"); !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("got %v, want exit status 3", err)
		}
	})
	t.Run("no such program", func(t *testing.T) {
		if err := n.Start(exec.Command("/nonexistent")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v, want %v", err, os.ErrNotExist)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, "sleep", "60")
		if err := n.Start(cmd); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := cmd.Wait(); err == nil {
			t.Error("sleep ended by itself")
		}
	})
}

// nsenter is how a user gets in from another terminal.
func TestRootPath(t *testing.T) {
	n := netnstest.New(t)
	out, err := exec.Command("nsenter", "--net="+n.Path(), "ip", "-o", "link").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "1: lo:") || strings.Contains(string(out), "eth0") {
		t.Errorf("nsenter --net=%s: %v\n%s", n.Path(), err, out)
	}
}

func TestRootClose(t *testing.T) {
	netnstest.CheckFDs(t)
	netnstest.Require(t)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the program outlived its namespace")
	}
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v, want killed", cmd.ProcessState)
	}
	if err := n.Do(func() error { return nil }); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("Do after Close: %v, want %v", err, netns.ErrClosed)
	}
	if err := n.Start(exec.Command("true")); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("Start after Close: %v, want %v", err, netns.ErrClosed)
	}
}

func TestRootHere(t *testing.T) {
	netnstest.CheckFDs(t)
	netnstest.Require(t)
	host := here(t)
	n, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Do(func() error {
		if got := here(t); got != host {
			return fmt.Errorf("in %s, want %s", got, host)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestRootOpen(t *testing.T) {
	netnstest.CheckFDs(t)
	made := netnstest.New(t)
	opened, err := netns.Open(made.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var inside, again string
	if err := errors.Join(
		made.Do(func() error { inside = here(t); return nil }),
		opened.Do(func() error { again = here(t); return nil }),
	); err != nil || inside != again || inside == here(t) {
		t.Errorf("opened %s, want %s; %v", again, inside, err)
	}
	// It keeps the namespace by itself, and has a path of its own.
	if err := made.Close(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("nsenter", "--net="+opened.Path(), "readlink", "/proc/self/ns/net").Output(); err != nil || strings.TrimSpace(string(out)) != inside {
		t.Errorf("nsenter --net=%s: %s, %v; want %s", opened.Path(), out, err, inside)
	}
}

func TestOpenErrors(t *testing.T) {
	netnstest.CheckFDs(t)
	if _, err := netns.Open("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/null", "/proc/self/ns/mnt", t.TempDir(), fifo} {
		want := "netns: " + path + " is not a network namespace"
		if _, err := netns.Open(path); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// run runs a program in the namespace and returns all that it printed.
func run(t testing.TB, n *netns.NS, argv ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.Run(cmd)
	return out.String(), err
}

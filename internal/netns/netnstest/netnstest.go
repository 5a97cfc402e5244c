package netnstest

import (
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/netns"
)

// New returns an anonymous namespace that is closed when the test ends, or
// skips the test and says why.
func New(t testing.TB) *netns.NS {
	t.Helper()
	Require(t)
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Require skips the test, and says why, unless it may make namespaces and
// interfaces.
func Require(t testing.TB) {
	t.Helper()
	if !netns.Privileged() {
		t.Skip("needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run the tests as root")
	}
	n, err := netns.New()
	if err != nil {
		t.Skip(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// SetSysctl writes a parameter of a namespace, as NS.SetSysctl does.
func SetSysctl(t testing.TB, n *netns.NS, name, value string) {
	t.Helper()
	if err := n.SetSysctl(name, value); err != nil {
		t.Fatal(err)
	}
}

// Here opens the namespace of the calling thread.
func Here() (*netns.NS, error) { return netns.Open("/proc/thread-self/ns/net") }

// NeedFDs skips the test, and says why, where a process may not have n descriptors.
func NeedFDs(t testing.TB, n uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < n {
		t.Skipf("it takes %d descriptors, and %d are allowed (ulimit -n)", n, limit.Cur)
	}
}

// CheckFDs fails the test if descriptors that it opened are still open after its clean-ups.
// Call it first.
func CheckFDs(t testing.TB) {
	t.Helper()
	warmPoller(t)
	before := openFDs(t)
	t.Cleanup(func() {
		// A killed program's descriptors and the runtime's own may take a
		// moment to close, on a busy machine a long one.
		var left []string
		for wait := time.Millisecond; wait < 8*time.Second; wait *= 2 {
			if left = added(before, openFDs(t)); len(left) == 0 {
				return
			}
			time.Sleep(wait)
		}
		t.Errorf("descriptors left open: %s", strings.Join(left, ", "))
	})
}

// warmPoller makes the runtime open the descriptors of its poller, which it
// keeps.
func warmPoller(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
}

// openFDs counts the open descriptors by what they are.
func openFDs(t testing.TB) map[string]int {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	open := make(map[string]int)
	for _, p := range paths {
		// The descriptor of the listing itself is closed by now.
		if target, err := os.Readlink(p); err == nil {
			open[target]++
		}
	}
	return open
}

func added(before, after map[string]int) []string {
	var more []string
	for target, n := range after {
		if n > before[target] {
			more = append(more, target)
		}
	}
	sort.Strings(more)
	return more
}

// Container makes a cgroup as a container's that has the given ID, 64 digits, and returns it open;
// it skips the test where it cannot. What is in it has to end before the test does.
func Container(t testing.TB, id string) *os.File {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		path, err := os.MkdirTemp(f[1], "exnet-test-*-"+id+".scope") // others may have the ID, and the process number
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			for wait := time.Millisecond; ; wait *= 2 { // a process that has ended leaves it a moment later
				err := os.Remove(path)
				if err == nil {
					return
				}
				if wait > 8*time.Second {
					t.Error(err)
					return
				}
				time.Sleep(wait)
			}
		})
		group, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { group.Close() })
		return group
	}
	t.Skip("there is no cgroup2")
	return nil
}

// Enter moves a process into a cgroup.
func Enter(t testing.TB, group *os.File, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(group.Name(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
}

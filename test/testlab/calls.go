package testlab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Traced returns a command that is args, all of whose threads' system calls strace counts, and what
// reads when it has ended how many there were, by name. It skips the test if there is no strace.
func Traced(t testing.TB, args ...string) (traced []string, calls func() map[string]int) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "calls")
	traced = append([]string{strace, "-f", "-c", "-U", "name,calls", "-o", file}, args...)
	return traced, func() map[string]int {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]int)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] != "total" {
				if n, err := strconv.Atoi(f[1]); err == nil {
					all[f[0]] = n
				}
			}
		}
		return all
	}
}

// CompareCalls checks that a program has made no more system calls for each of n connections than
// another one, of those whose number does not depend on who runs when.
func CompareCalls(t testing.TB, plain, got map[string]int, n int) {
	t.Helper()
	if plain["socket"]+plain["accept4"] < n {
		t.Fatalf("the plain program has made %d connections of %d", plain["socket"]+plain["accept4"], n)
	}
	for _, name := range []string{
		"socket", "connect", "close", "write", "sendto", "sendmsg", "recvmsg", "epoll_ctl", "getsockopt", "setsockopt",
		"getsockname", "getpeername", "shutdown", "dup", "fcntl", "ioctl", "mmap", "munmap", "openat", "memfd_create", "socketpair",
		"membarrier",
	} {
		if got[name] > plain[name]+n/5 {
			t.Errorf("%s: %d calls for %d connections, plain %d", name, got[name], n, plain[name])
		}
	}
}

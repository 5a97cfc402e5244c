// Package benchtest has helpers for the tests of dsbench and its paths: they find
// leftover processes, check what this host offers, and wait without races.
//
// # Concurrency
//
// Its functions are for the goroutine of a test.
package benchtest

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
	"exnet/node/tun"
)

// Children returns the processes that process pid started and that still exist.
func Children(t *testing.T, pid string) []string {
	t.Helper()
	lists, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

// CountMeasurements returns a function that counts the measurements that process pid has begun,
// as far as it was called meanwhile. Each has two workers, and there are other children: the os
// package starts one to see whether it can use pidfds.
func CountMeasurements(t *testing.T, pid string) func() int {
	seen := map[string]bool{}
	n := 0
	return func() int {
		if w := Children(t, pid); len(w) == 2 && !seen[w[0]] && !seen[w[1]] {
			seen[w[0]], seen[w[1]] = true, true
			n++
		}
		return n
	}
}

// NoChildren fails the test if it leaves processes behind.
func NoChildren(t *testing.T) {
	t.Helper()
	if left := Children(t, "self"); len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
}

// Eventually waits until ok.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no success within the time: %s", what)
		}
	}
}

// Temporary gives dsbench a temporary directory of its own, and returns a function that lists it.
func Temporary(t *testing.T) func() []os.DirEntry {
	t.Helper()
	dir, err := os.MkdirTemp("", "dst") // short: sockets' names are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return func() []os.DirEntry {
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
}

// RequireExn skips the test, and says why, where exn0 is not available.
func RequireExn(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		dev, err := tun.Open(tun.Config{Name: "exn0", MTU: 1500})
		if err != nil {
			return err
		}
		return dev.Close()
	})
	if err != nil {
		t.Skip(err)
	}
}

// AnyAlive reports whether one of the processes runs; a zombie that its new
// parent has not collected yet does not.
func AnyAlive(pids []string) bool {
	for _, pid := range pids {
		f, err := os.Open("/proc/" + pid + "/status")
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if state, ok := strings.CutPrefix(lines.Text(), "State:"); ok && !strings.HasPrefix(strings.TrimSpace(state), "Z") {
				f.Close()
				return true
			}
		}
		f.Close()
	}
	return false
}

// Congestion returns a congestion control that this process may use.
func Congestion(t *testing.T) string {
	t.Helper()
	if netns.Privileged() || tcpbench.CongestionAllowed("cubic") {
		return "cubic"
	}
	return "reno"
}

// NoBroker returns why direct sockets are not available here, "" if they are.
func NoBroker(t *testing.T) string {
	t.Helper()
	s, err := broker.New(broker.Config{Path: t.TempDir() + "/b"})
	if err != nil {
		return err.Error()
	}
	s.Close()
	return ""
}

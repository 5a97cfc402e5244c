package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/refs"
)

// TestMain fails the run if a packet buffer of netstack is left.
func TestMain(m *testing.M) {
	refs.SetLeakMode(refs.LeaksPanic)
	os.Setenv("EXNET_DS_WELCOME", "20000") // programs find a broker that a busy machine runs late
	code := m.Run()
	removeExnRun()
	refs.DoLeakCheck()
	os.Exit(code)
}

// checkLeaks fails the test if it ends, its clean-ups included, with
// descriptors or goroutines that it did not begin with, or with a thread in
// another namespace. Call it first.
func checkLeaks(t *testing.T) {
	t.Helper()
	netnstest.CheckFDs(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, before)
		eventually(t, threadsAtHome)
	})
}

// threadsAtHome reports a thread of this process that is in another namespace
// than its main thread.
func threadsAtHome() error {
	home, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		// A thread that ended meanwhile is nowhere.
		if at, err := os.Stat(task); err == nil && !os.SameFile(home, at) {
			return fmt.Errorf("%s is in another namespace", task)
		}
	}
	return nil
}

// checkNobodyIn fails the test if a process other than this one is in the
// namespace: a program that was started and forgotten, or a child of one.
func checkNobodyIn(t *testing.T, ns *netns.NS) {
	t.Helper()
	eventually(t, func() error {
		want, err := os.Stat(ns.Path())
		if err != nil {
			return err
		}
		places, err := filepath.Glob("/proc/[0-9]*/ns/net")
		if err != nil {
			return err
		}
		self := fmt.Sprintf("/proc/%d/", os.Getpid())
		for _, place := range places {
			at, err := os.Stat(place)
			if err != nil || !os.SameFile(want, at) || strings.HasPrefix(place, self) {
				continue
			}
			name, _ := os.ReadFile(filepath.Join(place, "../../comm"))
			return fmt.Errorf("%s is still in the namespace: %s", filepath.Join(place, "../.."), strings.TrimSpace(string(name)))
		}
		return nil
	})
}

// eventually waits until f returns nil, and fails the test with its last error
// if that takes too long.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Error(err)
}

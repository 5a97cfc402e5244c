package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/refs"

	"exnet/internal/leaktest"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tempdir"
	"exnet/test/testlab"
)

// TestMain fails the run if a packet buffer of netstack is left.
func TestMain(m *testing.M) {
	refs.SetLeakMode(refs.LeaksPanic)
	os.Setenv("EXNET_DS_WELCOME", "20000") // programs find a broker that a busy machine runs late
	code, err := testlab.Shared(m)
	if err != nil {
		panic(err)
	}
	removeExnRun()
	// Tests kill exn-run, too: what that leaves goes with the next of its directories.
	if dir, err := tempdir.New("exn-run"); err == nil {
		_ = tempdir.Remove(dir)
	}
	leaktest.Packets()
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
		leaktest.None(t, before)
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

// eventually waits until f returns nil, and fails the test with its last error
// if that takes too long.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	if err := testlab.Await(f); err != nil {
		t.Error(err)
	}
}

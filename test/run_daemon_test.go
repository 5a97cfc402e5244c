package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/cmd/exn-run/exnrun"
	"exnet/internal/longtest"

	"golang.org/x/sys/unix"
)

// A daemon outlives its exn-run, which was between it and the broker for a report: it finds the
// broker by itself, and its later connections are direct.
func TestRootRunDaemonAfterReport(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "redis-benchmark", "redis-server")
	const port = "6379"
	checkLeaks(t)
	l := newLocal(t, true)
	// One program is there all the time, as the broker ends when none is.
	keep := startIn(t, l.ns, nil, l.exnRun, "--loopback", "--", programPath("sleep"), "1000")
	pidFile := filepath.Join(l.dir, "pid")
	l.run(t, "redis-server", "--port", port, "--save", "", "--dir", l.dir, "--daemonize", "yes", "--pidfile", pidFile)
	keep.listens(t, port) // the daemon does, in the same namespace
	direct := func() bool {
		client := l.other(t, l.exnRun)
		client.run(t, "redis-benchmark", "-p", port, "-n", "20000", "-c", "1", "-t", "get", "-q")
		return slices.ContainsFunc(client.connections(t), func(c exnrun.Record) bool { return c.Path == "direct" })
	}
	for end := time.Now().Add(hangTime); !direct(); {
		if time.Now().After(end) {
			t.Error("no connection to the daemon becomes direct")
			break
		}
	}
	keep.stop()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	for unix.Kill(pid, 0) == nil && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
}

package dsbench

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
)

// temporary has dsbench make its directories where nobody else does, and returns
// a function that lists them.
func temporary(t *testing.T) func() []os.DirEntry {
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

func TestRootRunExnShm(t *testing.T) {
	requireExn(t)
	left := temporary(t)
	netnstest.CheckFDs(t)
	for _, words := range []string{
		"stream --paths veth,exn,exn-shm",
		"stream --paths veth,exn,exn-shm --streams 2 --no-fast-path --mtu 9000",
		"pingpong --paths veth,exn,exn-shm",
	} {
		status, stdout, stderr := runProgram(t.Context(), words+short)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		rows := decodeRows(t, stdout)
		checkRows(t, rows, "veth", "exn", "exn-shm")
		if one, two := rows[1], rows[2]; two.MTU != one.MTU || two.NoFastPath != strings.Contains(words, "no-fast-path") {
			t.Errorf("row %+v", two)
		}
		noChildren(t)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

// TestRootExnShmNodeDies: a measurement under way ends at once, says why, and
// leaves nothing, whichever node it is.
func TestRootExnShmNodeDies(t *testing.T) {
	requireExn(t)
	for victim := range 2 {
		left := temporary(t)
		netnstest.CheckFDs(t)
		p := newExnShm(NodeConfig{}).(*exnShmPath)
		if err := p.Setup(t.Context()); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(100*time.Millisecond, p.nodes[victim].Kill)
		defer timer.Stop()
		start := time.Now()
		_, err := p.Measure(t.Context(), aMinute())
		if err == nil || !strings.Contains(err.Error(), "a process of the nodes ended: a worker ended without a result (signal: killed)") {
			t.Errorf("error %v", err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("it took %v to notice", d)
		}
		for range 2 {
			if err := p.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		noChildren(t)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

func TestExnShmSetupFails(t *testing.T) {
	left := temporary(t)
	netnstest.CheckFDs(t)
	p := newExnShm(NodeConfig{MTU: 1}) // what the options do not let through
	err := p.Setup(t.Context())
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	noChildren(t)
	if l := left(); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}

// TestRootExnShmSignals: Ctrl-C removes everything, and so does the death of
// dsbench itself.
func TestRootExnShmSignals(t *testing.T) {
	requireExn(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			left := temporary(t)
			cmd, _, stderr := program(t, "stream --paths exn-shm --control exn-shm --duration 1m --json")
			var workers []string
			eventually(t, "two nodes and two ends", func() bool {
				workers = children(t, strconv.Itoa(cmd.Process.Pid))
				return len(workers) == 4
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if want := "dsbench stream: interrupted after 0 of 5 measurements\n"; sig == syscall.SIGINT && stderr.String() != want {
				t.Errorf("stderr %q, want %q", stderr, want)
			}
			eventually(t, "the workers' end", func() bool { return !anyAlive(workers) })
			if l := left(); len(l) > 0 {
				t.Errorf("left behind: %v", l)
			}
		})
	}
}

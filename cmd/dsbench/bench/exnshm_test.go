package bench

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
)

func TestRootRunExnShm(t *testing.T) {
	benchtest.RequireExn(t)
	left := benchtest.Temporary(t)
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
		benchtest.NoChildren(t)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

// TestRootExnShmSignals: Ctrl-C removes everything, and so does the death of
// dsbench itself.
func TestRootExnShmSignals(t *testing.T) {
	benchtest.RequireExn(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			left := benchtest.Temporary(t)
			cmd, _, stderr := program(t, "stream --paths exn-shm --control exn-shm --duration 1m --json")
			var workers []string
			benchtest.Eventually(t, "two nodes and two ends", func() bool {
				workers = benchtest.Children(t, strconv.Itoa(cmd.Process.Pid))
				return len(workers) == 4
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if want := "dsbench stream: interrupted after 0 of 5 measurements\n"; sig == syscall.SIGINT && stderr.String() != want {
				t.Errorf("stderr %q, want %q", stderr, want)
			}
			benchtest.Eventually(t, "the workers' end", func() bool { return !benchtest.AnyAlive(workers) })
			if l := left(); len(l) > 0 {
				t.Errorf("left behind: %v", l)
			}
		})
	}
}

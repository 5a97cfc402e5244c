package bench

import (
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
)

func TestRunDS(t *testing.T) {
	if why := benchtest.NoBroker(t); why != "" {
		t.Skip(why)
	}
	left := benchtest.Temporary(t)
	netnstest.CheckFDs(t)
	flags := " --paths lo,ds --duration 50ms --warmup 100ms --runs 2 --json --congestion " + benchtest.Congestion(t)
	zero := strings.Replace(flags, "lo,ds", "lo,ds-zcopy", 1)
	for _, words := range []string{
		"stream" + flags, "pingpong" + flags, "rate" + flags, "crr --streams 2" + flags, "cpu" + flags,
		"stream --size 64k" + zero, "pingpong --size 4k" + zero, "rate --size 1k" + zero,
	} {
		status, stdout, stderr := runProgram(t.Context(), words)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		path := "ds"
		if strings.HasSuffix(words, zero) {
			path = "ds-zcopy"
		}
		checkRows(t, decodeRows(t, stdout), "lo", path)
		benchtest.NoChildren(t)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

func TestRootRunDSExn(t *testing.T) {
	benchtest.RequireExn(t)
	status, stdout, stderr := runProgram(t.Context(), "stream --paths exn,ds-exn --control exn --duration 50ms --warmup 200ms --runs 2 --json")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %s", status, stderr)
	}
	checkRows(t, decodeRows(t, stdout), "exn", "ds-exn")
	benchtest.NoChildren(t)
}

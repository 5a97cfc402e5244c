package bench

import (
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/benchtest"
	"exnet/internal/netns/netnstest"
)

func TestRootRunExn(t *testing.T) {
	benchtest.RequireExn(t)
	netnstest.CheckFDs(t)
	for _, words := range []string{
		"stream --paths veth,exn",
		"stream --paths veth,exn --streams 2 --no-fast-path",
		"pingpong --paths veth,exn",
	} {
		status, stdout, stderr := runProgram(t.Context(), words+short)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		rows := decodeRows(t, stdout)
		checkRows(t, rows, "veth", "exn")
		if r := rows[1]; r.MTU != 65535 || r.NoFastPath != strings.Contains(words, "no-fast-path") {
			t.Errorf("row %+v", r)
		}
		benchtest.NoChildren(t)
	}
}

func TestRootRunExnMTU(t *testing.T) {
	benchtest.RequireExn(t)
	status, stdout, stderr := runProgram(t.Context(), "pingpong --paths exn --control exn --mtu 9000"+short)
	if status != 0 {
		t.Fatalf("status %d, %s", status, stderr)
	}
	if rows := decodeRows(t, stdout); len(rows) != 1 || rows[0].MTU != 9000 {
		t.Errorf("rows %+v", rows)
	}
}

package pager

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// A line says what is missing in a core. Without a core, nothing is said.
func TestCore(t *testing.T) {
	needPaging(t)
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil || strings.ContainsAny(string(pattern), "|/@") {
		t.Skipf("cores go to %q (%v)", pattern, err)
	}
	program := compile(t, "cores")
	t.Chdir(t.TempDir())
	for _, limit := range []string{"0", "100000000"} {
		o := runPaged(t, setting{local: Smallest}, program, limit)
		ws, ok := o.state.Sys().(syscall.WaitStatus)
		if !ok || ws.Signal() != syscall.SIGABRT || ws.CoreDump() != (limit != "0") {
			t.Fatalf("limit %s: %v\n%s", limit, o.state, o.stderr)
		}
		if ws.CoreDump() && len(o.said) == 1 && strings.Contains(o.said[0], "has dumped core") || !ws.CoreDump() && len(o.said) == 0 {
			continue
		}
		t.Errorf("limit %s: %q", limit, o.said)
	}
}

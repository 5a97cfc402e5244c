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

// A program whose filter kills what its memory needs ends, and one line says why. One whose filter
// refuses the moves goes on, with all of its memory here.
func TestFiltered(t *testing.T) {
	needPaging(t)
	program := compile(t, "filters")
	for _, c := range []struct {
		how    string
		signal syscall.Signal // 0: none
		said   string         // by the pager
		stderr string         // by the library
	}{
		{"refuse", 0, "", ""}, {"process", syscall.SIGSYS, "its seccomp filter", ""},
		{"thread", syscall.SIGKILL, "its seccomp filter", ""}, {"receive", syscall.SIGKILL, "", "a filter of this program"},
	} {
		o := runPaged(t, setting{local: Smallest}, program, c.how)
		ws, ok := o.state.Sys().(syscall.WaitStatus)
		ended := ok && (c.signal == 0 && o.stdout == "end\n" || c.signal != 0 && ws.Signal() == c.signal)
		if !ended || len(o.said) > 0 != (c.said != "") || c.said != "" && !hasText(o.said, c.said) || !strings.Contains(o.stderr, c.stderr) {
			t.Errorf("%s: %v\n%s%s%q", c.how, o.state, o.stdout, o.stderr, o.said)
		}
	}
}

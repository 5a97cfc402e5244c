package pager

import (
	"os/exec"
	"strings"
	"testing"
)

// mremap of memory that is one area for the program does what it does without a pager, though the
// kernel has it as several. What cannot be moved as a whole is not moved.
func TestRemap(t *testing.T) {
	needPaging(t)
	program := compile(t, "remaps")
	for _, row := range []string{
		"fixed", "back", "grow", "grow-here", "grow-nowhere", "shrink", "fixed-shrink", "fixed-grow", "dontunmap",
		"overlap", "misaligned", "hole", "sealed",
	} {
		t.Run(row, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), program, row).Output()
			if err != nil {
				t.Skipf("this kernel: %v", err)
			}
			o := runPaged(t, setting{local: 2 * Smallest}, program, row)
			o.clean(t)
			want := string(out)
			if row == "sealed" { // by itself, the kernel may have moved a part
				want = o.stdout
				if !strings.Contains(want, "sealed: error 1\nfrom: 8 of 8 pages") {
					t.Errorf("%s", want)
				}
			}
			if o.stdout != want {
				t.Errorf("paged\n%sby itself\n%s", o.stdout, want)
			}
		})
	}
}

// The kernel changes words that are elsewhere for a program's futex calls, and says what is no
// memory.
func TestFutexWords(t *testing.T) { same(t, Smallest, compile(t, "words")) }

// A debugger that has stopped a program reads memory of it that is elsewhere.
func TestTraced(t *testing.T) {
	o := runPaged(t, setting{local: Smallest}, compile(t, "traced"))
	const want = "0 errors, 0 wrong\ntracer 0, 0 wrong afterwards\n"
	if !o.state.Success() || o.stdout != want || o.stderr != "" || len(o.said) > 0 {
		t.Errorf("%v\n%s%s%q", o.state, o.stdout, o.stderr, o.said)
	}
	if o.counts.Moved == 0 || o.counts.Ahead == 0 {
		t.Errorf("no memory was elsewhere: %+v", o.counts)
	}
}

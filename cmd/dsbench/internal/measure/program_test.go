package measure

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func shell(script string) *exec.Cmd { return exec.Command("sh", "-c", script) }

// TestProgram: who waits for a program learns why it has ended, and one that runs is stopped with
// what it has started.
func TestProgram(t *testing.T) {
	never := func() error { return errors.New("not yet") }
	ends, err := Start("short", shell("echo first; echo no port >&2"), (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	if err := Await(t.Context(), "it", never, ends); err == nil || err.Error() != "short ends: no port" {
		t.Errorf("error %v", err)
	}
	if err := ends.Stop(); err != nil {
		t.Error(err)
	}
	runs, err := Start("long", shell("sleep 1000 & wait"), (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := Await(ctx, "it", never, runs); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	begin := time.Now()
	if err := runs.Stop(); err != nil || time.Since(begin) > GraceTime/2 {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	if err := (*Program)(nil).Stop(); err != nil {
		t.Error(err)
	}
}

func TestOutput(t *testing.T) {
	if out, _, err := Output(t.Context(), shell("echo 7; echo noise >&2"), (*exec.Cmd).Start); out != "7\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	out, _, err := Output(t.Context(), shell("echo starting up; echo why >&2; exit 3"), (*exec.Cmd).Start)
	if !strings.Contains(out, "starting up") || err == nil || err.Error() != "exit status 3: why" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestChoose(t *testing.T) {
	known := []string{"a", "b"}
	if words, err := Choose("--only", "part", "b,a", known); strings.Join(words, " ") != "b a" || err != nil {
		t.Errorf("%q, %v", words, err)
	}
	if words, err := Choose("--only", "part", "", known); words != nil || err != nil {
		t.Errorf("%q, %v", words, err)
	}
	if _, err := Choose("--only", "part", "a,c", known); err == nil || err.Error() != `--only: unknown part "c": choose from a, b` {
		t.Errorf("error %v", err)
	}
}

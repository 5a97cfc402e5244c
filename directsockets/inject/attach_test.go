//go:build amd64 || arm64

package inject

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/longtest"
)

// attachEnv has the test program attach to the process that it names, and end.
const attachEnv = "EXN_TEST_ATTACH"

// attachOnly is the test program as that which attaches.
func attachOnly() {
	pid, err := strconv.Atoi(os.Getenv(attachEnv))
	if err == nil {
		err = Attach(pid, os.Getenv(libraryEnv))
	}
	if err != nil {
		fmt.Println(err)
	}
}

// runner is a program of the tests that runs.
type runner struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
}

// runs starts a program that runs until it is told to end.
func runs(t *testing.T, program, args string) *runner {
	t.Helper()
	r := &runner{t: t, cmd: exec.Command(program, strings.Fields(args)...)}
	r.cmd.Env = append(os.Environ(), "EXN_TEST_ARGS="+args)
	r.cmd.Stderr = &r.stderr
	r.cmd.WaitDelay = time.Minute
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	r.out = bufio.NewReader(out)
	if line, err := r.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v, %s", line, err, &r.stderr)
	}
	return r
}

// end has it end, and returns what it says.
func (r *runner) end() (res result) {
	r.t.Helper()
	r.in.Close()
	text, _ := io.ReadAll(r.out) // Wait has the reason
	err := r.cmd.Wait()
	if _, scan := fmt.Sscanf(string(text), "self %s pid %d wrong %d calls %d", &res.Self, &res.PID, &res.Wrong, &res.Calls); scan != nil || err != nil || res.Wrong != 0 {
		r.t.Errorf("%v: %v, %v\n%s%s", r.cmd, scan, err, text, &r.stderr)
	}
	return res
}

// A running program of Go gets the library, with 200 threads under load as well.
func TestAttachGo(t *testing.T) {
	library := hook(t)
	for variant := range goVariants {
		t.Run(variant, func(t *testing.T) {
			times := 1
			if variant == "static" && !testing.Short() {
				times = 5
			}
			for range times {
				r := runs(t, goProgram(t, variant), "load")
				if err := Attach(r.cmd.Process.Pid, library); err != nil {
					t.Error(err)
				}
				if err := Attach(r.cmd.Process.Pid, library); !errors.Is(err, ErrHas) {
					t.Errorf("again: %v", err)
				}
				if res := r.end(); res.Calls == 0 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
}

// So does one of C, whose threads wait in system calls, compute, and are in handlers.
func TestAttachC(t *testing.T) {
	library := hook(t)
	for variant := range cVariants {
		t.Run(variant, func(t *testing.T) {
			for range 3 {
				r := runs(t, cProgram(t, variant), "load")
				if err := Attach(r.cmd.Process.Pid, library); err != nil {
					t.Error(err)
				}
				if res := r.end(); res.Calls == 0 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
}

// A tracer that is killed at any step of attaching leaves a running program plain or whole.
func TestAttachKilled(t *testing.T) {
	longtest.Skip(t)
	library, program := hook(t), goProgram(t, "pie")
	plain := 0
	for n := 0; ; n++ {
		r := runs(t, program, "load few")
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), attachEnv+"="+strconv.Itoa(r.cmd.Process.Pid), libraryEnv+"="+library, killEnv+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if len(out) > 0 {
			t.Errorf("%s", out)
		}
		ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if res := r.end(); res.Calls == 0 {
			plain++
		}
		if err == nil {
			t.Logf("killed at %d steps, of which %d left it plain", n, plain)
			break
		} else if ws.Signal() != syscall.SIGKILL || t.Failed() {
			t.Fatalf("step %d: %v", n, err)
		}
	}
	if plain < 20 {
		t.Errorf("plain after %d steps", plain)
	}
}

// A program that uses the GS base itself is left alone.
func TestAttachBase(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("arm64 has no such register, and needs no such page")
	}
	library := hook(t)
	program := build(t, "base", func(out string) *exec.Cmd {
		return exec.Command("cc", "-O2", "-static", "-o", out, "testdata/base/main.c")
	})
	r := runs(t, program, "")
	if err := Attach(r.cmd.Process.Pid, library); !errors.Is(err, errBase) {
		t.Error(err)
	}
	if res := r.end(); res.Wrong != 0 {
		t.Errorf("%+v", res)
	}
}

// A program that has the page at 1 MiB itself is left alone, and goes on to make threads.
func TestAttachLow(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("arm64 has no such register, and needs no such page")
	}
	library := hook(t)
	program := build(t, "c-low", func(out string) *exec.Cmd {
		return exec.Command("cc", "-O2", "-static", "-pthread", "-Wl,-Ttext-segment=0x100000", "-o", out, "testdata/cprogram/main.c")
	})
	r := runs(t, program, "load")
	if err := Attach(r.cmd.Process.Pid, library); !errors.Is(err, errPage) {
		t.Error(err)
	}
	if res := r.end(); res.Calls != 0 {
		t.Errorf("%+v", res)
	}
}

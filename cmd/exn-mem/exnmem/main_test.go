package exnmem

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/internal/leaktest"
	"exnet/memory/pager"
	"exnet/memory/pager/preload"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// asCommand has the test's program be exn-mem.
const asCommand = "EXNMEM_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Unsetenv(asCommand)
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if where := os.Getenv(asNode); where != "" {
		os.Exit(serveNode(where))
	}
	leaktest.Main(m)
}

// exnMem is exn-mem with these arguments.
func exnMem(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // of a hang
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+t.TempDir())
	return cmd
}

// result runs a command to its end.
func result(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func needPaging(t testing.TB) {
	t.Helper()
	if err := pager.Check(); err != nil {
		t.Skip(err)
	}
	if _, err := preload.Build(t.Context()); errors.Is(err, preload.ErrCompiler) {
		t.Skip(err)
	}
}

const (
	script = "import hashlib; b = bytes(range(256)) * 65536; c = bytearray(b) + b; print(hashlib.sha256(c).hexdigest())"
)

// A program's memory is on another node, which lends it, and what it writes is right; nothing of
// that is left.
func TestLease(t *testing.T) {
	needPaging(t)
	want, err := exec.CommandContext(t.Context(), "python3", "-c", script).Output()
	if err != nil {
		t.Skip(err)
	}
	f := pooltest.New(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 1 << 30}})
	cmd := exnMem(t, "run", "--local", "8M", "--remote", "256M", "--node", "1", "--stats", "--", "python3", "-c", script)
	cmd.Env = append(cmd.Env, "EXN_MEMORY="+f.Socket(0))
	stdout, stderr, status := result(t, cmd)
	if stdout != string(want) || status != 0 || !strings.Contains(stderr, " moved out, ") || strings.Contains(stderr, " 0 fetched") {
		t.Errorf("status %d, %q, want %q\n%s", status, stdout, want, stderr)
	}
}

// Who asks for more than any node lends is refused in a line.
func TestNobodyLends(t *testing.T) {
	needPaging(t)
	f := pooltest.New(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 1 << 20}})
	cmd := exnMem(t, "run", "--local", "4M", "--remote", "256M", "--", "true")
	cmd.Env = append(cmd.Env, "EXN_MEMORY="+f.Socket(0))
	_, stderr, status := result(t, cmd)
	if status != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "exn-mem: --remote: ") {
		t.Errorf("status %d\n%s", status, stderr)
	}
}

// A lender that ends while the program runs costs the program SIGBUS, and one line.
func TestLenderEnds(t *testing.T) {
	needPaging(t)
	f := pooltest.New(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 1 << 30}})
	dir := t.TempDir()
	ready, gone := filepath.Join(dir, "ready"), filepath.Join(dir, "gone")
	cmd := exnMem(t, "run", "--local", "8M", "--remote", "256M", "--", "python3", "-c", `
import os, sys, time
b = bytearray(os.urandom(1 << 20)) * 32
open(sys.argv[1], 'w').close()
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
print(sum(b))
`, ready, gone)
	cmd.Env = append(cmd.Env, "EXN_MEMORY="+f.Socket(0))
	go func() {
		for i := 0; i < 6000; i++ {
			if _, err := os.Stat(ready); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		f.Stop(fabric.NodeID(1))
		_ = os.WriteFile(gone, nil, 0o600)
	}()
	stdout, stderr, status := result(t, cmd)
	if status != 128+int(unix.SIGBUS) || stdout != "" || strings.Count(stderr, "exn-mem: ") != 1 {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
}

// The exit status and the output are the program's; arguments that begin with a dash, too.
func TestStatus(t *testing.T) {
	needPaging(t)
	for _, c := range []struct {
		args   []string
		stdout string
		status int
	}{
		{[]string{"sh", "-c", "echo $0 $1; exit 7", "a", "--local"}, "a --local\n", 7},
		{[]string{"sh", "-c", "kill -9 $$"}, "", 128 + 9},
		{[]string{"/nonexistent"}, "", 127},
		{[]string{"/"}, "", 126},
	} {
		cmd := exnMem(t, append([]string{"run", "--local", "4M", "--remote", "4M", "--control", "--"}, c.args...)...)
		if stdout, stderr, status := result(t, cmd); stdout != c.stdout || status != c.status {
			t.Errorf("%q: status %d, %q, want %d, %q\n%s", c.args, status, stdout, c.status, c.stdout, stderr)
		}
	}
}

// Programs that the library does not reach are refused in a line, and so is bad usage.
func TestRefused(t *testing.T) {
	needPaging(t)
	static := filepath.Join(t.TempDir(), "static")
	source := static + ".c"
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-static", "-o", static, source).CombinedOutput(); err != nil {
		t.Skipf("cc -static: %v\n%s", err, out)
	}
	sizes := []string{"--local", "4M", "--remote", "4M", "--control"}
	for _, c := range []struct {
		args   []string
		text   string
		status int
	}{
		{append(sizes, static), "is statically linked", exitFailure},
		{append(sizes, "/proc/self/exe"), "is a Go program", exitFailure},
		{[]string{"--local", "4M", "true"}, "--remote", 2},
		{[]string{"--local", "4M", "--remote", "4M"}, "name a program", 2},
		{[]string{"--local", "4K", "--remote", "4M", "true"}, "--local", 2},
	} {
		_, stderr, status := result(t, exnMem(t, append([]string{"run"}, c.args...)...))
		first, _, _ := strings.Cut(stderr, "\n")
		if status != c.status || !strings.Contains(first, c.text) || status == exitFailure && stderr != first+"\n" {
			t.Errorf("%q: status %d\n%s", c.args, status, stderr)
		}
	}
}

// A size need not be a multiple of a page.
func TestOddSizes(t *testing.T) {
	needPaging(t)
	cmd := exnMem(t, "run", "--local", "9234567", "--remote", "33333333", "--control", "--", "python3", "-c", "print(len(bytearray(20000000)))")
	if stdout, stderr, status := result(t, cmd); stdout != "20000000\n" || status != 0 {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
}

package memory_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// oncilla builds the test program of Oncilla's interface, and what else the makefile can.
func oncilla(t *testing.T, targets ...string) (program func(kind string) string) {
	t.Helper()
	for _, name := range []string{"make", "cc"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	args := append([]string{"-s", "-j2", "-C", "c", "BUILD=" + dir}, targets...)
	if out, err := exec.CommandContext(t.Context(), "make", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(kind string) string { return filepath.Join(dir, kind, "oncilla") }
}

// Oncilla's interface does what its header says, with lenders of the same host and of others, also
// under the sanitizers, and leaves no lease.
func TestOncilla(t *testing.T) {
	testOncilla(t, oncilla(t, "programs", "ocm"), "plain", "asan", "tsan")
}

// The same under clang's MemorySanitizer.
func TestOncillaUninitialized(t *testing.T) {
	longtest.Skip(t)
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("no clang, which has MemorySanitizer")
	}
	testOncilla(t, oncilla(t, "msan"), "msan")
}

func testOncilla(t *testing.T, program func(kind string) string, kinds ...string) {
	for _, far := range []bool{false, true} {
		fabric := pooltest.New
		if far {
			fabric = pooltest.NewFar
		}
		f := fabric(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 64 << 20}})
		for _, kind := range kinds {
			cmd := exec.CommandContext(t.Context(), program(kind))
			cmd.Env = append(os.Environ(), "EXN_MEMORY="+f.Socket(0))
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || string(out) != "ok\n" || strings.Count(errs.String(), "\n") != 1 || !strings.HasPrefix(errs.String(), "libocm: ") {
				t.Errorf("far %v, %s: %v: %q\n%s", far, kind, err, out, &errs)
			}
		}
		st := f.Nodes[1].Status()
		for end := time.Now().Add(time.Minute); len(st.Lent) != 0 && time.Now().Before(end); st = f.Nodes[1].Status() {
			<-time.After(time.Millisecond) // another host's lender hears later that the program has ended
		}
		if len(st.Lent) != 0 {
			t.Errorf("far %v: left: %+v", far, st.Lent)
		}
	}
}

// What a lender has taken back, or had when it ended, is an error for a program.
func TestOncillaLenderEnds(t *testing.T) {
	program := oncilla(t, "programs")
	for what, end := range map[string]func(*pooltest.Fabric){
		"revoked": func(f *pooltest.Fabric) { f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, 0) },
		"ended":   func(f *pooltest.Fabric) { f.Stop(1) },
	} {
		f := pooltest.New(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 64 << 20}})
		cmd := exec.CommandContext(t.Context(), program("asan"), "hold")
		cmd.Env = append(os.Environ(), "EXN_MEMORY="+f.Socket(0))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "held\n" {
			t.Errorf("%q, %v", line, err)
		}
		end(f)
		await(t, func() bool { return len(f.Nodes[1].Status().Lent) == 0 })
		in.Close()
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil || string(rest) != "ok\n" {
			t.Errorf("%s: %v, %q", what, err, rest)
		}
	}
}

// await waits for a condition.
func await(t *testing.T, f func() bool) {
	t.Helper()
	for i := 0; !f(); i++ {
		if i == 6000 {
			t.Fatal("not in a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

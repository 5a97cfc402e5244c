package exnrun

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"exnet/directsockets/broker/client"
	"exnet/internal/leaktest"
)

// programEnv makes the test binary the program exn-run.
const programEnv = "EXN_RUN_TEST_PROGRAM"

func TestMain(m *testing.M) {
	// exn-run starts /proc/self/exe as its broker, and to say how its tracer fared: this binary.
	itself := len(os.Args) > 1 && slices.Contains([]string{brokerCommand, serveCommand, traceCommand}, os.Args[1])
	if itself || os.Getenv(programEnv) != "" {
		os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	leaktest.Main(m)
}

// exnRun is exn-run as a process of its own, with another shared library than the
// real one, and without a broker.
func exnRun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"--library", library(t)}, args...)...)
	cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"=/no/broker")
	return cmd
}

// library is something that LD_PRELOAD takes and that does nothing.
func library(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"} {
		if path, err := filepath.EvalSymlinks(name); err == nil {
			return path
		}
	}
	t.Skip("no libm.so.6 here")
	return ""
}

// output runs a command and returns what it wrote, and its exit status.
func output(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// writeFile makes a file in a directory of the test.
func writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

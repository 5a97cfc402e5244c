package bench

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/clitest"
	"exnet/internal/tcpbench"
)

// TestRootRunUnprivileged: a user who may make no user namespace gets what needs no privileges,
// with the system's congestion control if cubic is not for everybody.
func TestRootRunUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run it as another user")
	}
	clitest.ShareCoverage(t)
	const nobody = 65534
	run := func(words string) (status int, stdout, stderr string) {
		cmd := exec.Command("/proc/self/exe", strings.Fields(words)...)
		// As in a user namespace that has no further ones.
		cmd.Env = append(os.Environ(), programEnv+"=1", "EXN_USERNS=1", "TMPDIR=/tmp", "XDG_RUNTIME_DIR=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); errors.Is(err, fs.ErrPermission) {
			t.Skipf("nobody may not run the test: %v", err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
	system := tcpbench.SystemCongestion()
	if !tcpbench.CongestionAllowed(system) {
		t.Fatalf("the system's congestion control is %q", system)
	}
	status, stdout, stderr := run("stream --paths lo,ds --json" + short)
	if status != 0 {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	want := "cubic"
	if !tcpbench.CongestionAllowed(want) {
		want = system
		if !strings.Contains(stderr, "TCP with "+system+", the system's congestion control, and not cubic") {
			t.Errorf("standard error: %s", stderr)
		}
	}
	for _, r := range decodeRows(t, stdout) {
		if r.Congestion != want || r.Median <= 0 {
			t.Errorf("%+v", r)
		}
	}
	// A path that is named and takes privileges is left out, with a status that says so.
	status, stdout, stderr = run("stream --paths lo,veth --json" + short)
	if rows := decodeRows(t, stdout); status != 1 || len(rows) != 1 || rows[0].Path != "lo" || !strings.Contains(stderr, "without the paths that need privileges") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	// A congestion control that is named is taken, or refused.
	if !tcpbench.CongestionAllowed("cubic") {
		if status, _, stderr = run("stream --paths lo --congestion cubic" + short); status != 1 || !strings.Contains(stderr, "congestion control cubic: ") {
			t.Errorf("status %d, %s", status, stderr)
		}
	}
}

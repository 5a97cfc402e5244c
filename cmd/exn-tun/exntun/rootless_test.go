package exntun

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/cli"
	"exnet/internal/clitest"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

const nobody = 65534

// TestRootlessRefused runs exn-tun as a user who may not open /dev/net/tun.
func TestRootlessRefused(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	clitest.ShareCoverage(t)
	info, err := os.Stat("/dev/net/tun")
	if err != nil {
		t.Skip(err)
	}
	if info.Mode().Perm()&0o006 != 0 {
		t.Skipf("/dev/net/tun is %v: nobody may open it", info.Mode())
	}
	for _, args := range [][]string{{"demo"}, {"demo", "--json"}, {"demo", "--shell"}, {"demo", "--", "true"}} {
		cmd, stdout, stderr := programCommand(args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		err := cmd.Run()
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("nobody may not run the test: %v", err)
		}
		if status := cmd.ProcessState.ExitCode(); status != cli.ExitFailure {
			t.Errorf("%q: status %d, want %d", args, status, cli.ExitFailure)
		}
		oneLineOf(t, stderr.String(), "/dev/net/tun: permission denied: run as root")
		if args[len(args)-1] != "--json" {
			if stdout.String() != "" {
				t.Errorf("%q printed %q", args, stdout)
			}
		} else if d := lastLineJSON(t, stdout.String()); d.OK || !strings.Contains(d.Error, "permission denied") {
			t.Errorf("%q printed %q", args, stdout)
		}
	}
}

// runRootless runs exn-tun as a user without privileges, who may open
// /dev/net/tun: in a mount namespace of the test, so nothing of the host's is
// changed. Tests before it may have given this process real-time priority, which a program
// that it starts would have too: so it runs with the default policy.
func runRootless(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	need(t, "mount", "mknod", "chrt", "setpriv")
	clitest.ShareCoverage(t)
	dir := t.TempDir()
	script := `set -e
		mount -t tmpfs -o mode=755 none "$0"
		mknod -m 666 "$0/tun" c 10 200
		mount --bind "$0/tun" /dev/net/tun
		cd /
		exec chrt --other 0 setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/3 "$@"`
	cmd, out, errs := programCommand()
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, dir}, args...)
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd.ExtraFiles = []*os.File{self}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if text := errs.String(); strings.Contains(text, "user namespaces are not allowed here") || strings.Contains(text, "mount:") || strings.Contains(text, "mknod:") {
		t.Skip(text)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestRootlessDemo: the whole demonstration in a user namespace.
func TestRootlessDemo(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	status, stdout, stderr := runRootless(t, "demo", "--duration", "20ms", "--runs", "1", "--json")
	if status != cli.ExitOK {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	d := lastLineJSON(t, stdout)
	checkDemo(t, d)
	if d.Setup.RealTime {
		t.Error("a user without privileges has real-time priority")
	}
}

// TestRootlessCommand: the exit status and the descriptors pass through.
func TestRootlessCommand(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	arg := sleepArg()
	status, stdout, stderr := runRootless(t, "demo", "--", "sh", "-c", "echo $EXN_ADDR; sleep "+arg+" & exit 6")
	if status != 6 || stdout != "10.2.0.1\n" {
		t.Errorf("status %d, %q\n%s", status, stdout, stderr)
	}
	if alive(t, arg) {
		t.Error("a process is still there")
	}
}

// TestRootNoTUN: where there is no /dev/net/tun at all.
func TestRootNoTUN(t *testing.T) {
	netnstest.Require(t)
	need(t, "mount")
	leavesNothing(t)
	cmd, stdout, stderr := programCommand()
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", `mount -t tmpfs none /dev && exec /proc/self/fd/3 demo`}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd.ExtraFiles = []*os.File{self}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitFailure || stdout.String() != "" {
		t.Errorf("%v, %q", err, stdout)
	}
	oneLineOf(t, stderr.String(), "no such file or directory: load the driver (modprobe tun)")
}

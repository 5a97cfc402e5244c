package netns_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/clitest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

const nobody = 65534

// inUserNS is what the re-executed program does: the first time round it
// re-executes itself, the second time it plays its part.
func inUserNS(part string) int {
	if !netns.InUserNS() {
		status, err := netns.ReexecInUserNS()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return status
	}
	switch part {
	case "again":
		_, err := netns.ReexecInUserNS()
		fmt.Println(errors.Is(err, netns.ErrUserNS))
		return 0
	case "signal":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready")
		fmt.Println(<-signals)
		return 7
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	fmt.Println("uid", os.Geteuid(), "privileged", netns.Privileged())
	n, err := netns.New()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer n.Close()
	cmd := exec.Command("sh", "-c", "ip link set lo up && ip -o link && ls /sys/class/net && ping -c1 -W5 127.0.0.1 >/dev/null && cat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stdout
	if err := n.Run(cmd); err != nil {
		fmt.Println(err)
		return 1
	}
	return 42
}

// unprivileged makes a command of this test program that runs as a user without
// privileges, or skips the test. That user can not read the directory in which
// "go test" builds, so it gets a copy.
func unprivileged(t *testing.T, part string) *exec.Cmd {
	t.Helper()
	clitest.ShareCoverage(t)
	var user *syscall.Credential // nil: as this process is
	if os.Geteuid() == 0 {
		user = &syscall.Credential{Uid: nobody, Gid: nobody}
		try := exec.Command("true")
		try.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		if err := try.Run(); err != nil {
			t.Skip("cannot become another user:", err)
		}
	}
	dir, err := os.MkdirTemp("", "exntest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "test")
	if err := errors.Join(os.WriteFile(bin, program, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), roleEnv+"=userns", argEnv+"="+part)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	return cmd
}

// skipIfForbidden skips the test if that is what the command's error says.
func skipIfForbidden(t *testing.T, stderr string) {
	t.Helper()
	if strings.Contains(stderr, netns.ErrUserNS.Error()) {
		t.Skip(stderr)
	}
}

func TestUserNS(t *testing.T) {
	netnstest.CheckFDs(t)
	cmd := unprivileged(t, "")
	var out, errOut bytes.Buffer
	cmd.Stdin = strings.NewReader("from stdin\n")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	skipIfForbidden(t, errOut.String())
	if code := cmd.ProcessState.ExitCode(); code != 42 {
		t.Errorf("exit status %d (%v), want 42", code, err)
	}
	got := out.String()
	for _, want := range []string{"uid 0 privileged true\n", "1: lo:", "from stdin\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() || strings.Contains(got, "eth0") {
		t.Errorf("printed %s\n%s", got, errOut.String())
	}
}

func TestUserNSOnlyOnce(t *testing.T) {
	cmd := unprivileged(t, "again")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	skipIfForbidden(t, errOut.String())
	if err != nil || string(out) != "true\n" {
		t.Errorf("%v: %s%s", err, out, errOut.String())
	}
}

// startWaiting starts a re-executed program that waits for a signal, and returns
// what it prints from there on.
func startWaiting(t *testing.T) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := unprivileged(t, "signal")
	// A session of its own has no terminal, so that no key can have sent the
	// signal, whatever runs the tests.
	cmd.SysProcAttr.Setsid = true
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timeout := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { timeout.Stop() })
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, ready); err != nil {
		_ = cmd.Wait()
		skipIfForbidden(t, errOut.String())
		t.Fatal(err, errOut.String())
	}
	return cmd, out
}

func TestUserNSSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, out := startWaiting(t)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 7 || string(rest) != sig.String()+"\n" {
				t.Errorf("exit status %d, printed %q", code, rest)
			}
		})
	}
}

// The inner process does not outlive the outer one: its end of the pipe closes.
func TestUserNSParentKilled(t *testing.T) {
	cmd, out := startWaiting(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) != 0 {
		t.Errorf("printed %q, %v", rest, err)
	}
	_ = cmd.Wait()
}

func TestUserNSKilled(t *testing.T) {
	cmd := unprivileged(t, "die")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	_ = cmd.Run()
	skipIfForbidden(t, errOut.String())
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("exit status %d, want %d", code, 128+int(syscall.SIGKILL))
	}
}

package exntun

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/cli"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// TestRootCommandStatus: the command's exit status is exn-tun's.
func TestRootCommandStatus(t *testing.T) {
	testlab.RequireTUN(t)
	for _, c := range []struct {
		command string
		want    int
		stderr  string
	}{
		{"true", 0, "sent 0 frames eagerly"},
		{"sh -c exit$IFS\"7\"", 7, ""},
		{"sh -c kill$IFS-9$IFS$$", 137, ""},
		{"no-such-program -x", 127, "demo: \"no-such-program\": executable file not found in $PATH: install it"},
		{"/no/such/program", 127, "demo: /no/such/program: no such file or directory: install it"},
		{"/etc/passwd", 126, "demo: /etc/passwd may not be executed: chmod +x /etc/passwd"},
	} {
		t.Run(c.command, func(t *testing.T) {
			leavesNothing(t)
			path := filepath.Join(t.TempDir(), "x.pcapng")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			status, stdout, stderr := run(t.Context(), append([]string{"demo", "--fair", "--capture", path, "--"}, strings.Fields(c.command)...)...)
			ran := c.want != 126 && c.want != 127
			if text, err := os.ReadFile(path); err != nil || (string(text) != "old") != ran {
				t.Errorf("the file of --capture: %q, %v", text, err)
			}
			if status != c.want || stdout != "" {
				t.Errorf("status %d, want %d; %q on standard output", status, c.want, stdout)
			}
			if !strings.Contains(stderr, c.stderr) {
				t.Errorf("no %q in %q", c.stderr, stderr)
			}
		})
	}
}

// serving begins a command of the shell that has a socket, so that nobody waits for it, and then is
// the program that follows, up to a quote.
const serving = "bash -c 'exec 3<>/dev/udp/127.0.0.1/9; exec "

// inNode runs a shell script as the command and returns what it printed.
func inNode(t *testing.T, script string, flags ...string) (stdout, stderr string) {
	t.Helper()
	args := append([]string{"demo", "--fair"}, flags...)
	status, stdout, stderr := run(t.Context(), append(args, "--", "/bin/sh", "-c", script)...)
	if status != cli.ExitOK {
		t.Errorf("%s: status %d\n%s%s", script, status, stdout, stderr)
	}
	return stdout, stderr
}

func TestRootCommandEnvironment(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	stdout, _ := inNode(t, "env", "--nodes", "3", "--in", "3")
	for _, want := range []string{
		"EXN_NODE=3", "EXN_NODES=3", "EXN_IF=exn0", "EXN_ADDR=10.2.0.3", "EXN_ADDR6=fd00:10:2::3",
		"EXN_PEER=10.2.0.1", "EXN_PEER6=fd00:10:2::1", "EXN_PEERS=10.2.0.1 10.2.0.2",
		"EXN_PEERS6=fd00:10:2::1 fd00:10:2::2", "EXN_BROADCAST=10.2.0.255",
	} {
		if !strings.Contains("\n"+stdout, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, stdout)
		}
	}
}

// TestRootCommandReaches: every node from a command, and its own addresses.
func TestRootCommandReaches(t *testing.T) {
	testlab.RequireTUN(t)
	need(t, "ip", "ping", "nsenter")
	leavesNothing(t)
	stdout, stderr := inNode(t, `
		for a in $EXN_ADDR $EXN_ADDR6 $EXN_PEERS $EXN_PEERS6; do ping -q -c 1 -w 5 $a >/dev/null || echo "no answer from $a"; done
		ip -o -4 addr show dev $EXN_IF
		nsenter --net=$EXN_NS2 ip -o -4 addr show dev $EXN_IF
		echo "name: <$(ip netns identify $$)>"
		ls /sys/class/net`, "--nodes", "3", "--stats")
	for _, want := range []string{"inet 10.2.0.1/24", "inet 10.2.0.2/24", "name: <>", "exn0"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "no answer") {
		t.Error(stdout)
	}
	for _, want := range []string{"exn-tun demo: sent ", "counters\n", "node 3    ", "exteth.rx_eager"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q on standard error:\n%s", want, stderr)
		}
	}
}

// TestRootCommandLeavesNothing: what the command leaves behind is ended.
func TestRootCommandLeavesNothing(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	arg := sleepArg()
	_, stderr := inNode(t, "sleep "+arg+" & setsid sleep "+arg+" & exit 0")
	if !strings.Contains(stderr, "ended what was left behind (processes: 2)") {
		t.Error(stderr)
	}
	if alive(t, arg) {
		t.Error("a process is still there")
	}
}

// TestRootCommandOrphans: what ends long before the command is no zombie until
// then.
func TestRootCommandOrphans(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	stdout, _ := inNode(t, `
		orphan=$(sleep 0.1 >/dev/null & echo $!)
		for i in $(seq 100); do kill -0 $orphan || exit 0; sleep 0.05; done 2>/dev/null
		echo "a zombie"`, "--serve", "sleep 0.2 & "+serving+"sleep 1000'")
	if stdout != "" {
		t.Error(stdout)
	}
}

func TestRootServe(t *testing.T) {
	testlab.RequireTUN(t)
	need(t, "iperf3")
	leavesNothing(t)
	stdout, stderr := inNode(t, "iperf3 -c $EXN_PEER -n 1M && iperf3 -c $EXN_PEER6 -p 5202 -n 1M",
		"--serve", "iperf3 -s", "--serve", "iperf3 -s -p 5202")
	if strings.Count(stdout, "iperf Done.") != 2 {
		t.Error(stdout)
	}
	for _, want := range []string{"node 2: Server listening on 5201", "node 2: Server listening on 5202"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
}

// TestRootServeNext: servers run on the node after the command's.
func TestRootServeNext(t *testing.T) {
	testlab.RequireTUN(t)
	need(t, "iperf3")
	leavesNothing(t)
	stdout, stderr := inNode(t, "iperf3 -c $EXN_PEER -n 1M", "--in", "2",
		"--serve", "echo this is $EXN_NODE with $EXN_ADDR; exec iperf3 -s")
	if !strings.Contains(stdout, "iperf Done.") || !strings.Contains(stderr, "node 1: this is 1 with 10.2.0.1\n") {
		t.Errorf("%s%s", stdout, stderr)
	}
}

func TestRootServeFails(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	status, stdout, stderr := run(t.Context(), "demo", "--fair", "--serve", "echo no luck >&2; exit 4", "--", "echo", "ran")
	if status != cli.ExitFailure || stdout != "" {
		t.Errorf("status %d, %q; want %d and no command run", status, stdout, cli.ExitFailure)
	}
	for _, want := range []string{"node 2: no luck\n", `exn-tun demo: --serve "echo no luck >&2; exit 4": it ended at once with status 4`} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in %q", want, stderr)
		}
	}
}

// TestRootServeBackground: a server that goes into the background is waited
// for, and found again at the end.
func TestRootServeBackground(t *testing.T) {
	testlab.RequireTUN(t)
	need(t, "iperf3")
	leavesNothing(t)
	stdout, stderr := inNode(t, "iperf3 -c $EXN_PEER -n 1M", "--serve", "iperf3 -s -D")
	if !strings.Contains(stdout, "iperf Done.") || !strings.Contains(stderr, "left behind (processes: 1)") {
		t.Errorf("%s%s", stdout, stderr)
	}
}

// TestRootServeSilent: a server that does not listen, and does not want to end.
func TestRootServeSilent(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	defer func(is time.Duration) { listenTimeout = is }(listenTimeout)
	listenTimeout = 100 * time.Millisecond
	arg := sleepArg()
	serve := "trap '' TERM; sleep " + arg + "; sleep " + arg
	stdout, stderr := inNode(t, "echo ran", "--serve", serve)
	if stdout != "ran\n" || !strings.Contains(stderr, "does not listen yet; going on") {
		t.Errorf("%q, %q", stdout, stderr)
	}
	if alive(t, arg) {
		t.Error("the server is still there")
	}
}

// TestRootCommandCancelled: the command is asked to end, then made to.
func TestRootCommandCancelled(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	for _, c := range []struct {
		name, script string
		want         int
		least        time.Duration
	}{
		{"obeys", "echo ready >&2; exec sleep 60", 143, 0},
		{"cleans up", "trap 'exit 9' TERM; echo ready >&2; sleep 60 & wait", 9, 0},
		{"refuses", "trap '' TERM; echo ready >&2; while :; do sleep 1; done", 137, commandGrace},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stdout buffer
			stderr := buffer{text: "ready\n", onText: func() { go cancel() }}
			began := time.Now()
			status := Run(ctx, []string{"demo", "--fair", "--", "sh", "-c", c.script}, &stdout, &stderr)
			if d := time.Since(began); status != c.want || d < c.least || d > c.least+30*time.Second {
				t.Errorf("status %d after %v, want %d\n%s", status, d, c.want, stderr.String())
			}
		})
	}
}

// TestRootCommandCancelledEarly: it ends while the servers start, and the
// command does not run.
func TestRootCommandCancelledEarly(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	arg := sleepArg()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout buffer
	stderr := buffer{text: "node 2: here", onText: func() { go cancel() }}
	status := Run(ctx, []string{"demo", "--fair", "--serve", "echo here; sleep " + arg, "--", "echo", "ran"}, &stdout, &stderr)
	if status != cli.ExitFailure || stdout.String() != "" || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("status %d, %q, %q", status, stdout.String(), stderr.String())
	}
	if alive(t, arg) {
		t.Error("the server is still there")
	}
}

// TestRootCommandSignals: a signal to exn-tun alone reaches the command.
func TestRootCommandSignals(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		leavesNothing(t)
		cmd, _, stderr := programCommand("demo", "--", "sh", "-c", "echo ready >&2; exec sleep 60")
		// No terminal, so that no signal can come from its keys.
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		stderr.text, stderr.onText = "ready\n", func() { go cmd.Process.Signal(sig) }
		_ = cmd.Run()
		if got, want := cmd.ProcessState.ExitCode(), 128+int(sig); got != want {
			t.Errorf("%v: status %d, want %d\n%s", sig, got, want, stderr)
		}
	}
}

// TestRootCommandBreaks: exn0 is taken away while the command runs.
func TestRootCommandBreaks(t *testing.T) {
	testlab.RequireTUN(t)
	need(t, "ip")
	leavesNothing(t)
	status, _, stderr := run(t.Context(), "demo", "--fair", "--", "sh", "-c", "ip link del exn0; exec sleep 60")
	if status != cli.ExitFailure || !strings.Contains(stderr, "exn-tun demo: exn0 is gone: ") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// need skips the test where a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(err)
		}
	}
}

// TestRootKilled: exn-tun is killed, and what it started goes too.
func TestRootKilled(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	arg := sleepArg()
	cmd, _, stderr := programCommand("demo", "--serve", "exec "+serving+"sleep "+arg+"'", "--", "sh", "-c", "echo ready >&2; exec sleep "+arg)
	stderr.text, stderr.onText = "ready\n", func() { go cmd.Process.Kill() }
	// The killed program's children hold its output a moment longer.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err == nil {
		t.Error("it ended in order")
	}
	eventually(t, "the programs of a killed exn-tun end", func() bool { return !alive(t, arg) })
}

// TestRootShellOfScript: a shell whose input is no terminal.
func TestRootShellOfScript(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	for _, shell := range []string{"/bin/sh", "/bin/bash", ""} {
		if _, err := os.Stat(shell); err != nil && shell != "" {
			continue
		}
		cmd, stdout, stderr := programCommand("demo", "--nodes", "12", "--in", "2", "--shell")
		cmd.Env = append(cmd.Env, "SHELL="+shell)
		cmd.Stdin = strings.NewReader("echo this is $EXN_NODE\nexit 5\n")
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != 5 {
			t.Errorf("%s: status %d\n%s", shell, got, stderr)
		}
		if stdout.String() != "this is 2\n" {
			t.Errorf("%s: %q", shell, stdout)
		}
		fits(t, stderr.String())
		for _, want := range []string{"12 nodes on one fabric; this shell is on node 2", "10.2.0.2     fd00:10:2::2     (here)", "nsenter --net=$EXN_NS1 COMMAND", "and 4 more", "exn-tun demo: sent "} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: no %q in\n%s", shell, want, stderr)
			}
		}
	}
}

package exnrun

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"exnet/internal/cli"
	"exnet/internal/clitest"
)

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		{nil, 125, "", "Usage:"},
		{[]string{"-h"}, 0, "Usage:", ""},
		{[]string{"version"}, 0, "exn-run ", ""},
		{[]string{"help"}, 0, "Usage:", ""},
		{[]string{"--", "version"}, 127, "", `"version"`},
		{[]string{"--", "help"}, 127, "", `"help"`},
		{[]string{"--version"}, 0, "exn-run ", ""},
		{[]string{"--man"}, 0, ".TH EXN", ""},
		{[]string{"--completion", "csh"}, 125, "", "name bash, fish or zsh"},
		{[]string{"--no-such-flag", "true"}, 125, "", "see exn-run -h"},
		{[]string{"--loopbak", "true"}, 125, "", "did you mean --loopback?"},
		{[]string{"--explain"}, 125, "", "name a program to run"},
		{[]string{"--print-env", "true"}, 125, "", "run no program"},
		{[]string{"--print-env", "--explain"}, 125, "", "leave out --explain"},
		{[]string{"--libfabric", "--explain", "true"}, 125, "", "leave out their flags"},
		{[]string{"--libfabric", "no-such-program"}, 127, "", "install it"},
		{[]string{"--rules", "/no/such/file", "true"}, 125, "", "/no/such/file"},
		{[]string{"no-such-program"}, 127, "", "install it"},
		{[]string{"/etc/passwd"}, 126, "", "may not be executed: chmod +x"},
		{[]string{"/tmp"}, 126, "", "is a directory"},
		{[]string{"/etc/passwd/x"}, 126, "", "not a directory"},
		{[]string{""}, 127, "", "install it"},
		{[]string{"--library", "/etc/passwd", "true"}, 125, "", "not a shared library"},
		{[]string{"--library", "/nowhere/x.so", "true"}, 125, "", "--library: stat /nowhere/x.so: no such file"},
		{[]string{"--node", "", "true"}, 125, "", "--node: it is empty"},
		{[]string{"--node", "/etc/passwd", "true"}, 125, "", "/etc/passwd is not a network namespace: give the ID of a node"},
		{[]string{"--node", "65537", "true"}, 125, "", "open /run/netns/65537: no such file"},
		{[]string{"--log-format", "json", "no-such-program"}, 127, "", `"level":"ERROR","msg":"\"no-such-program\"`},
		{[]string{"--log-format", "json", "--log-level", "loud"}, 125, "", `"command":"exn-run"`},
		{[]string{"--log-format", "xml", "true"}, 125, "", "use text, json"},
	} {
		var stdout, stderr bytes.Buffer
		status := Run(tt.args, &stdout, &stderr)
		if status != tt.status || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) ||
			tt.stdout == "" && stdout.Len() > 0 || tt.stderr == "" && stderr.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", tt.args, status, &stdout, &stderr)
		}
		if len(tt.args) > 0 && strings.Count(stderr.String(), "\n") > 1 {
			t.Errorf("%q: more than a line: %q", tt.args, &stderr)
		}
	}
	var help bytes.Buffer
	Run([]string{"-h"}, &help, &help)
	clitest.Fits(t, 82, help.String())
}

// A level of error leaves out warnings only.
func TestMessages(t *testing.T) {
	for level, want := range map[string]string{"debug": "a warning", "error": ""} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		cli.LogFlags(fs, "")
		if err := fs.Parse([]string{"--log-format=json", "--log-level", level}); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		m := toSay(fs, &said)
		m.warnUser("a %s", "warning")
		if !strings.Contains(said.String(), want) || want == "" && said.Len() > 0 {
			t.Errorf("%s: %q", level, &said)
		}
		if said.Reset(); m.exitStatus(errors.New("failed")) != exitFailure || !strings.Contains(said.String(), `"level":"ERROR","msg":"failed"`) {
			t.Errorf("%s: %q", level, &said)
		}
	}
}

func TestCheckRules(t *testing.T) {
	good := writeFile(t, "good", "tcp ssh* client * 22\ndirect * * * *\n", 0o600)
	bad := writeFile(t, "bad", "tcp ssh* client * 22\nudp * * * *\n", 0o600)
	worse := writeFile(t, "worse", "tcp\nudp * * * *\n", 0o600)
	for _, tt := range []struct {
		args, want string
		status     int
	}{
		{"--check-rules " + good, good + " is good: 2 rules\n", 0},
		{"--check-rules " + bad, bad + ":2: action", 125},
		{"--check-rules " + worse, "\nexn-run: invalid rules: " + worse + ":2: action", 125},
		{"--check-rules /none", "exn-run: --check-rules: open /none: no such file or directory\n", 125},
		{"--print-env --rules /none", "exn-run: --rules: open /none: no such file or directory\n", 125},
		{"--print-env --rules " + worse, "\nexn-run: invalid rules: " + worse + ":2: action", 125},
	} {
		var out bytes.Buffer
		if status := Run(strings.Fields(tt.args), &out, &out); status != tt.status || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: status %d, %q", tt.args, status, &out)
		}
	}
}

func TestPrintEnv(t *testing.T) {
	rules := writeFile(t, "rules", "tcp it's client * 22\n", 0o600)
	cmd := exnRun(t, "--rules", rules, "--print-env")
	cmd.Env = append(cmd.Env, "LD_PRELOAD=/lib/other.so "+library(t))
	stdout, stderr, status := output(t, cmd)
	if status != 0 {
		t.Fatalf("status %d, %q", status, stderr)
	}
	want := "export LD_PRELOAD=" + library(t) + ":/lib/other.so\nexport ASAN_OPTIONS=verify_asan_link_order=0\n" +
		`export EXNET_RULES='t it'\''s c 00000000000000000000000000000000 0 22 22'` + "\nexport EXNET_LOOPBACK=0\n"
	if stdout != want {
		t.Errorf("got\n%swant\n%s", stdout, want)
	}
	// A shell understands it.
	out, err := exec.Command("sh", "-c", stdout+`echo "$EXNET_RULES"`).Output()
	if err != nil || !strings.Contains(string(out), "t it's c ") {
		t.Errorf("%v: %q", err, out)
	}
}

// Where nobody wants to know anything, exn-run is gone: same process, same
// arguments, same descriptors, the environment and what was asked for.
func TestExec(t *testing.T) {
	cmd := exnRun(t, "--", "sh", "-c", `echo $$ "$0" "$1"; env; ls /proc/self/fd | wc -l; exit 3`, "a b", "")
	cmd.Env = append(cmd.Env, "EXNET_RULES=kept")
	plain := exec.Command("sh", "-c", `ls /proc/self/fd | wc -l`)
	fds, err := plain.Output()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := output(t, cmd)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if want := strconv.Itoa(cmd.Process.Pid) + " a b "; status != 3 || lines[0]+" " != want+" " && lines[0] != want {
		t.Errorf("status %d, %q, want 3, %q", status, lines[0], want)
	}
	if !slices.Contains(lines, "LD_PRELOAD="+library(t)) || !slices.Contains(lines, "EXNET_RULES=kept") {
		t.Errorf("the environment is\n%s", stdout)
	}
	if got, want := lines[len(lines)-1], strings.TrimSpace(string(fds)); got != want {
		t.Errorf("%s lines of descriptors, want %s", got, want)
	}
	if !strings.Contains(stderr, "no broker serves") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr: %q", stderr)
	}
}

// With --explain the program is a child, and ends as it would alone.
func TestStay(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	stdout, stderr, status := output(t, exnRun(t, "--explain", "-o", report, "--", "sh", "-c", `echo out; echo $EXNET_EXPLAIN; [ -e "$1" ] || exit 9; exit 3`, "sh", report))
	if status != 3 || stdout != "out\n1\n" || !strings.Contains(stderr, "no TCP connections seen: the program made none that was accepted, or is setuid, sets LD_PRELOAD itself, or is Go's and has the module exnet in it") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	if text, err := os.ReadFile(report); err != nil || len(text) > 0 {
		t.Errorf("the report: %q, %v", text, err)
	}
	// A program that cannot be started leaves an old report as it is.
	script := filepath.Join(t.TempDir(), "script")
	if err := errors.Join(os.WriteFile(report, []byte("old"), 0o600), os.WriteFile(script, []byte("#!/nonexistent\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	_, stderr, status = output(t, exnRun(t, "--report", report, "--", script))
	if text, err := os.ReadFile(report); status != 127 || err != nil || string(text) != "old" {
		t.Errorf("status %d, %s; the report: %q, %v", status, stderr, text, err)
	}
	want := "exn-run: " + script + ": its interpreter /nonexistent does not exist\n"
	if !strings.Contains(stderr, want) {
		t.Errorf("a child: %q, want %q", stderr, want)
	}
	if _, stderr, status = output(t, exnRun(t, "--", script)); status != 127 || !strings.Contains(stderr, want) {
		t.Errorf("in place of exn-run: status %d, %q, want %q", status, stderr, want)
	}
	cmd := exnRun(t, "--explain", "--", "sh", "-c", "kill -TERM $$")
	if output(t, cmd); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGTERM {
		t.Errorf("a program that a signal ends: %v", cmd.ProcessState)
	}
}

// Signals reach the program, and its end is exn-run's.
func TestStaySignals(t *testing.T) {
	for _, sig := range []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGINT} {
		cmd := exnRun(t, "--explain", "--", "sh", "-c", `trap 'exit 5' TERM HUP USR1 INT; echo ready; while :; do sleep 0.01; done`)
		r, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal: signals are for one
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() })
		_ = cmd.Wait() // its status is looked at
		kill.Stop()
		if cmd.ProcessState.ExitCode() != 5 {
			t.Errorf("%v: %v", sig, cmd.ProcessState)
		}
	}
}

// Nothing is left in the directory for temporary files, whatever signal ends exn-run and whenever;
// what SIGKILL leaves goes with the next run.
func TestStayLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left := func() []os.DirEntry {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	start := func() (cmd *exec.Cmd, end func()) {
		cmd = exnRun(t, "--explain", "--", "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, func() {
			in.Close()
			_ = cmd.Wait() // as a signal ends it
		}
	}
	for _, sig := range []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		for range 3 {
			cmd, end := start()
			for len(left()) == 0 { // the signal comes as early as it can
			}
			_ = cmd.Process.Signal(sig)
			if end(); len(left()) > 0 {
				t.Fatalf("%v leaves %v", sig, left())
			}
		}
	}
	cmd, end := start()
	for len(left()) == 0 {
	}
	_ = cmd.Process.Kill()
	if end(); len(left()) == 0 {
		t.Error("SIGKILL leaves nothing: this tests nothing")
	}
	// What it was just forking has the lock, too, until it executes its program.
	for tries := 0; len(left()) > 0; tries++ {
		if _, stderr, status := output(t, exnRun(t, "--explain", "true")); status != 0 || tries == 100 {
			t.Fatalf("after SIGKILL, and a run that ended with %d (%q), there are %v", status, stderr, left())
		}
	}
}

// A reader of standard error that goes does not end exn-run, whose program goes on.
func TestStayUnread(t *testing.T) {
	cmd := exnRun(t, "--log-level", "error", "--explain", "--", "sh", "-c", "exit 3")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stderr = w
	_ = cmd.Run() // its status is looked at
	w.Close()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("a program that exits with 3: %v", cmd.ProcessState)
	}
}

// A script without #! is the shell's, as for execvp(3).
func TestShellScript(t *testing.T) {
	script := writeFile(t, "script", "echo \"$1\"\n", 0o700)
	for _, flags := range [][]string{nil, {"--stats"}} {
		if stdout, stderr, status := output(t, exnRun(t, append(flags, script, "x")...)); stdout != "x\n" || status != 0 {
			t.Errorf("%q: status %d, %q, %q", flags, status, stdout, stderr)
		}
	}
}

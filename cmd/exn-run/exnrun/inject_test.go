package exnrun

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/inject"
)

// staticPrograms are the programs of package inject's tests, and how they are built.
var staticPrograms = []struct {
	name    string
	command []string
	source  string
}{
	{"Go", []string{"go", "build", "-ldflags=-s -w", "-o"}, "goprogram/main.go"},
	{"Go PIE", []string{"go", "build", "-buildmode=pie", "-o"}, "goprogram/main.go"},
	{"glibc", []string{"cc", "-O2", "-static", "-pthread", "-o"}, "cprogram/main.c"},
	{"musl", []string{"musl-gcc", "-O2", "-static", "-pthread", "-o"}, "cprogram/main.c"},
}

func buildStatic(t *testing.T, command []string, source string) string {
	t.Helper()
	if !inject.Supported {
		t.Skip("nothing can be injected on this machine")
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command(command[0], append(command[1:], path, "../../../directsockets/inject/testdata/"+source)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// The connections of a static program are direct, and it is seen as any other.
func TestStatic(t *testing.T) {
	for _, p := range staticPrograms {
		t.Run(p.name, func(t *testing.T) {
			program := buildStatic(t, p.command, p.source)
			broker := filepath.Join(t.TempDir(), "ds.sock")
			_, end := startBrokerAt(t, broker, time.Hour)
			defer end()
			report := filepath.Join(t.TempDir(), "report")
			cmd := exec.Command("/proc/self/exe", "--loopback", "--explain", "--report", report, program, "long")
			cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS=long")
			stdout, stderr, status := output(t, cmd)
			if status != 0 || !strings.HasPrefix(stdout, "self "+program) || !strings.Contains(stdout, " wrong 0 ") {
				t.Fatalf("status %d, %s%s", status, stdout, stderr)
			}
			if !strings.Contains(stderr, "the library was put into it") {
				t.Errorf("%s", stderr)
			}
			if direct, all := reported(t, report); all < 16 || direct < all/2 {
				t.Errorf("%d of %d connections were direct\n%s", direct, all, stderr)
			}
		})
	}
}

// A thread that Go makes has its own slot in the library, not that of the thread which made it, nor
// that of one which has ended.
func TestStaticThreads(t *testing.T) {
	program := buildStatic(t, staticPrograms[0].command, "gothreads/main.go")
	broker := filepath.Join(t.TempDir(), "ds.sock")
	_, end := startBrokerAt(t, broker, time.Hour)
	defer end()
	report := filepath.Join(t.TempDir(), "report")
	cmd := exec.Command("/proc/self/exe", "--loopback", "--report", report, program)
	cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker)
	if stdout, stderr, status := output(t, cmd); status != 0 || stdout != "wrong 0\n" {
		t.Fatalf("status %d, %s%s", status, stdout, stderr)
	}
	if direct, all := reported(t, report); all != 128 || direct < all/2 {
		t.Errorf("%d of %d connections were direct", direct, all)
	}
}

// A goroutine that waits for an answer yields, and finds it, before it is parked.
func TestStaticYields(t *testing.T) {
	yields(t, buildStatic(t, staticPrograms[0].command, staticPrograms[0].source))
}

// yields runs a program until a goroutine of it has found an answer while it yielded.
func yields(t *testing.T, program string) {
	t.Helper()
	broker := filepath.Join(t.TempDir(), "ds.sock")
	_, end := startBrokerAt(t, broker, time.Hour)
	defer end()
	report := filepath.Join(t.TempDir(), "report")
	found := uint64(0)
	for tries := 0; found == 0 && tries < 10; tries++ { // others may keep the CPU for as long as it yields
		cmd := exec.Command("/proc/self/exe", "--loopback", "--report", report, program, "long")
		cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS=long")
		if stdout, stderr, status := output(t, cmd); status != 0 || !strings.Contains(stdout, "wrong 0") {
			t.Fatalf("status %d, %s%s", status, stdout, stderr)
		}
		for _, r := range records(t, report) {
			found += r.SpinHits
		}
	}
	if found == 0 {
		t.Error("no goroutine has found an answer while it yielded")
	}
}

// A handler of Go finds a thread that is in the library at Syscall6: a profile says who called it,
// and the goroutines that SIGQUIT prints are whole.
func TestGoSignals(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("Go's handlers see the library itself on", runtime.GOARCH)
	}
	source := staticPrograms[0].source
	t.Run("static", func(t *testing.T) { profilesItself(t, buildStatic(t, []string{"go", "build", "-o"}, source)) })
	t.Run("cgo", func(t *testing.T) { profilesItself(t, buildCgo(t, "../../../directsockets/inject/testdata/"+source)) })
}

// profilesItself has a program do so, and reads the profile.
func profilesItself(t *testing.T, program string) {
	broker := filepath.Join(t.TempDir(), "ds.sock")
	_, end := startBrokerAt(t, broker, time.Hour)
	defer end()
	profile := filepath.Join(t.TempDir(), "profile")
	cmd := exec.Command("/proc/self/exe", "--loopback", program, "profiled")
	cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS=profiled", "EXN_TEST_PROFILE="+profile)
	if stdout, stderr, status := output(t, cmd); status != 0 || !strings.Contains(stdout, " wrong 0 ") {
		t.Fatalf("status %d, %s%s", status, stdout, stderr)
	}
	traces, err := exec.Command("go", "tool", "pprof", "-traces", program, profile).Output()
	if err != nil {
		t.Fatal(err)
	}
	calls, unknown := 0, strings.Count(string(traces), "runtime._ExternalCode\n")
	for trace := range strings.SplitSeq(string(traces), "-+-") {
		if strings.Contains(trace, ".Syscall6\n") && strings.Contains(trace, "main.") {
			calls++
		}
	}
	if calls == 0 || calls < unknown {
		t.Errorf("%d traces lead to Syscall6, %d to unknown code\n%s", calls, unknown, traces)
	}
}

// records returns the records of a report.
func records(t *testing.T, report string) (all []Record) {
	t.Helper()
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// reported returns how many connections a report has, and how many of them were direct.
func reported(t *testing.T, report string) (direct, all int) {
	t.Helper()
	for _, r := range records(t, report) {
		if all++; r.Path == "direct" {
			direct++
		}
	}
	return direct, all
}

// A static program that another program starts gets the library, too, and has the process that it
// was to have.
func TestStaticStarted(t *testing.T) {
	program := buildStatic(t, staticPrograms[0].command, staticPrograms[0].source)
	for name, command := range map[string][]string{
		"exec": {"sh", "-c", `echo "$$"; exec "$0" long`, program},
		"fork": {"sh", "-c", `"$0" long & echo "$!"; wait "$!"`, program},
		"env":  {"sh", "-c", `echo "$$"; exec env X=1 "$0" long`, program},
	} {
		t.Run(name, func(t *testing.T) {
			broker := filepath.Join(t.TempDir(), "ds.sock")
			_, end := startBrokerAt(t, broker, time.Hour)
			defer end()
			cmd := exec.Command("/proc/self/exe", append([]string{"--loopback", "--explain"}, command...)...)
			cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS=long")
			stdout, stderr, status := output(t, cmd)
			pid, said, _ := strings.Cut(stdout, "\n")
			if status != 0 || !strings.HasPrefix(said, "self "+program+" pid "+pid+" wrong 0 ") {
				t.Fatalf("status %d, %s%s", status, stdout, stderr)
			}
			if !strings.Contains(stderr, ": direct: both ends share memory") {
				t.Errorf("%s", stderr)
			}
		})
	}
}

// A static program that has direct connections starts itself, by the name that the kernel has for
// it as well.
func TestStaticStartsItself(t *testing.T) {
	program := buildStatic(t, staticPrograms[0].command, staticPrograms[0].source)
	broker := filepath.Join(t.TempDir(), "ds.sock")
	_, end := startBrokerAt(t, broker, time.Hour)
	defer end()
	cmd := exec.Command("/proc/self/exe", "--loopback", program, "again")
	cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS=again")
	if stdout, stderr, status := output(t, cmd); status != 0 || !strings.Contains(stdout, " wrong 0 ") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// What cannot be started is the shell's to report, and what has lost its environment is plain.
func TestStaticNotStarted(t *testing.T) {
	program := buildStatic(t, staticPrograms[0].command, staticPrograms[0].source)
	locked := writeFile(t, "locked", "", 0o600)
	for name, tt := range map[string]struct {
		command []string
		status  int
		says    string
	}{
		"no such file":   {[]string{"sh", "-c", "/no/such/program"}, 127, "not found"},
		"no permission":  {[]string{"sh", "-c", locked}, 126, "ermission denied"},
		"no environment": {[]string{"env", "-i", "EXN_TEST_ARGS=short", program, "short"}, 0, " wrong 0 calls 0 "},
	} {
		cmd := exec.Command("/proc/self/exe", append([]string{"--loopback"}, tt.command...)...)
		cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"=/no/broker")
		stdout, stderr, status := output(t, cmd)
		if status != tt.status || !strings.Contains(stdout+stderr, tt.says) {
			t.Errorf("%s: status %d, %s%s", name, status, stdout, stderr)
		}
	}
}

// A static program has the process that exn-run had, and no child.
func TestStaticProcess(t *testing.T) {
	program := buildStatic(t, staticPrograms[0].command, staticPrograms[0].source)
	cmd := exec.Command("/proc/self/exe", program, "maps")
	cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"=/no/broker", "EXN_TEST_ARGS=maps")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	if want := fmt.Sprintf(" pid %d wrong 0 ", cmd.Process.Pid); !strings.Contains(stdout.String(), want) || !strings.Contains(stderr.String(), "libexnds-free") {
		t.Errorf("%s%s", &stdout, &stderr)
	}
	for line := range strings.Lines(stderr.String()) {
		if _, rights, _ := strings.Cut(line, " "); strings.HasPrefix(rights, "rwx") {
			t.Errorf("%s", line)
		}
	}
}

// Why nothing is injected is said, and the program runs.
func TestStaticPlain(t *testing.T) {
	program := buildStatic(t, staticPrograms[0].command, staticPrograms[0].source)
	for name, tt := range map[string]struct{ env, want string }{
		"no compiler": {"CC=/no/compiler", "is a Go program and stays on TCP: build it with exn-go (libexnds-free.so: not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exnRun(t, program, "short")
			cmd.Env = append(cmd.Env, "EXN_TEST_ARGS=short", "HOME="+dir, "XDG_CACHE_HOME="+dir, "TMPDIR="+dir, tt.env)
			stdout, stderr, status := output(t, cmd)
			if os.Geteuid() == 0 && !strings.Contains(stderr, "not installed") {
				t.Skip("root has the library")
			}
			if status != 0 || !strings.Contains(stdout, " wrong 0 ") || !strings.Contains(stderr, tt.want) {
				t.Errorf("status %d, %s%s", status, stdout, stderr)
			}
		})
	}
}

// --become is exn-run's own.
func TestBecome(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := Run([]string{becomeCommand, "x"}, &stdout, &stderr); status != exitFailure || !strings.Contains(stderr.String(), "exn-run's own") {
		t.Errorf("status %d, %s", status, &stderr)
	}
}

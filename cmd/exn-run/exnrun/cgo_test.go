package exnrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/internal/mark"
)

// buildCgo builds a program with cgo.
func buildCgo(t *testing.T, source string, flags ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("Go's system calls beside C's are not replaced on", runtime.GOARCH)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, source)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// The connections of a Go program with cgo are direct, whoever links it: what Go and what C does.
func TestCgo(t *testing.T) {
	const all = "testdata/cgoprogram/main.go"
	for _, p := range []struct {
		name, source, argument string
		flags                  []string
		short                  bool
	}{
		{"C and Go", all, "", []string{"-ldflags=-s -w -buildid="}, true},
		{"PIE", all, "", []string{"-buildmode=pie"}, false},
		{"race", all, "", []string{"-race"}, false},
		{"linked by Go", "../../../directsockets/inject/testdata/goprogram/main.go", "long", nil, false},
	} {
		t.Run(p.name, func(t *testing.T) {
			if !p.short {
				longtest.Skip(t)
			}
			program := buildCgo(t, p.source, p.flags...)
			if found, err := FindProgram(program); err != nil || found.Kind != Dynamic || found.Reason() != "" {
				t.Errorf("%+v, %v, %q", found, err, found.Reason())
			}
			broker := filepath.Join(t.TempDir(), "ds.sock")
			_, end := startBrokerAt(t, broker, time.Hour)
			defer end()
			report := filepath.Join(t.TempDir(), "report")
			cmd := exec.Command("/proc/self/exe", "--loopback", "--report", report, program, p.argument)
			cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS="+p.argument)
			stdout, stderr, status := output(t, cmd)
			if status != 0 || !strings.Contains(stdout, "wrong 0") {
				t.Fatalf("status %d, %s%s", status, stdout, stderr)
			}
			if direct, all := reported(t, report); all < 16 || direct < all/2 {
				t.Errorf("%d of %d connections were direct\n%s", direct, all, stderr)
			}
		})
	}
}

// A program of an older Go, whose runtime waits past Syscall6, stays on TCP, and --explain says so.
func TestOldGo(t *testing.T) {
	dir := filepath.Dir(writeFile(t, "go.mod", "module old\n\ngo 1.22\n", 0o600)) // what is in the module exnet is left alone
	if err := os.CopyFS(dir, os.DirFS("testdata/oldgo")); err != nil {
		t.Fatal(err)
	}
	for cgo, want := range map[string]string{
		"0": "stays on TCP: its Go is older than 1.24",
		"1": "program stays on TCP: no jump can replace its system call at ",
	} {
		if cgo == "1" && runtime.GOARCH != "amd64" {
			continue
		}
		program := filepath.Join(t.TempDir(), "program")
		build := exec.Command("go", "build", "-o", program)
		build.Dir = dir
		build.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		broker := filepath.Join(t.TempDir(), "ds.sock")
		_, end := startBrokerAt(t, broker, time.Hour)
		defer end()
		cmd := exec.Command("/proc/self/exe", "--loopback", "--explain", program)
		cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker)
		if _, stderr, status := output(t, cmd); status != 0 || !strings.Contains(stderr, want) {
			t.Errorf("cgo %s: status %d, want %q in %s", cgo, status, want, stderr)
		}
	}
}

// A Go program without cgo that is a PIE runs as ever with LD_PRELOAD alone, as in a container that
// has the device: the dynamic linker loads the library, and Go's threads are not C's.
func TestPreloadedPIE(t *testing.T) {
	program := buildStatic(t, []string{"go", "build", "-buildmode=pie", "-o"}, "goprogram/main.go")
	cmd := exec.Command(program, "long")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library(t), "EXN_TEST_ARGS=long")
	stdout, stderr, status := output(t, cmd)
	if status != 0 || !strings.HasPrefix(stdout, "self "+program) || !strings.Contains(stdout, " wrong 0 ") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// A goroutine of a program with cgo yields as one without, wherever the linkers put Go's table of
// lines: its address is a multiple of 8, and of 16 in a larger program.
func TestCgoYields(t *testing.T) {
	const small, large = "gothreads", "goprogram"
	for _, p := range []struct {
		name, program string
		flags         []string
		short         bool
	}{
		{"linked by C", large, []string{"-ldflags=-s -w -linkmode=external"}, true},
		{"linked by Go", large, nil, false},
		{"PIE", large, []string{"-buildmode=pie"}, false},
		{"race", large, []string{"-race"}, false},
		{"small", small, []string{"-ldflags=-s -w"}, true},
	} {
		t.Run(p.name, func(t *testing.T) {
			if !p.short {
				longtest.Skip(t)
			}
			yields(t, buildCgo(t, "../../../directsockets/inject/testdata/"+p.program+"/main.go", p.flags...))
		})
	}
}

// A program whose Go is built with direct sockets of its own keeps them: nobody takes its calls.
func TestCgoOwn(t *testing.T) {
	longtest.Skip(t) // not in the short form
	program := buildCgo(t, "../../../directsockets/inject/testdata/goprogram/main.go")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const message = "sync: unlock of unlocked mutex" // some text that it has
	if strings.Count(string(text), message) == 0 {
		t.Fatal("the program has no such text")
	}
	marked := strings.ReplaceAll(string(text), message, (mark.Text("1") + strings.Repeat(" ", len(message)))[:len(message)])
	if err := os.WriteFile(program, []byte(marked), 0o700); err != nil {
		t.Fatal(err)
	}
	broker := filepath.Join(t.TempDir(), "ds.sock")
	_, end := startBrokerAt(t, broker, time.Hour)
	defer end()
	report := filepath.Join(t.TempDir(), "report")
	cmd := exec.Command("/proc/self/exe", "--loopback", "--report", report, program, "long")
	cmd.Env = append(os.Environ(), programEnv+"=1", client.PathEnv+"="+broker, "EXN_TEST_ARGS=long")
	stdout, stderr, status := output(t, cmd)
	if status != 0 || !strings.Contains(stdout, " wrong 0 ") {
		t.Fatalf("status %d, %s%s", status, stdout, stderr)
	}
	if _, all := reported(t, report); all != 0 {
		t.Errorf("the library saw %d connections", all)
	}
}

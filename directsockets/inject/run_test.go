//go:build amd64 || arm64

package inject

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test program is also what becomes a program with a library in it, and the tracer.
const (
	libraryEnv = "EXN_TEST_LIBRARY"
	killEnv    = "EXN_TEST_KILL" // at which step the tracer kills itself
	keptEnv    = "EXN_TEST_KEPT" // the folder of what is kept
	reporter   = "report"        // the program's name as that which says how it went
)

func TestMain(m *testing.M) {
	if text := os.Getenv(killEnv); text != "" {
		left, err := strconv.Atoi(text)
		step = func(string) {
			if left--; err == nil && left < 0 {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}
	}
	if os.Getenv(attachEnv) != "" {
		attachOnly()
		os.Exit(0)
	}
	if os.Args[0] == reporter {
		const library, step, errno = 1, 2, 3
		at, _ := strconv.Atoi(os.Args[step])
		e, _ := strconv.Atoi(os.Args[errno])
		fmt.Fprintln(os.Stderr, "stays plain:", Outcome(at, unix.Errno(e), os.Args[library]))
		os.Exit(0)
	}
	if library := os.Getenv(libraryEnv); library != "" {
		os.Unsetenv(libraryEnv)
		if n, err := strconv.Atoi(os.Getenv(killEnv)); err == nil {
			killAt = n + 1
		}
		if err := Launch(Config{File: os.Args[1], Library: library, Dir: os.Getenv(keptEnv), Report: []string{reporter, library}}); err != nil {
			fmt.Fprintln(os.Stderr, "launch:", err)
		}
		fmt.Fprintln(os.Stderr, syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// built is what programs are built into, once.
var built struct {
	sync.Mutex
	dir   string
	files map[string]string
}

// build runs a compiler that makes a file, once for each name.
func build(t *testing.T, name string, command func(out string) *exec.Cmd) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.files[name]; path != "" {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "inject")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.files = dir, make(map[string]string)
	}
	path := filepath.Join(built.dir, name)
	cmd := command(path)
	if errors.Is(cmd.Err, exec.ErrNotFound) {
		t.Skip(cmd.Err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	built.files[name] = path
	return path
}

// hook builds the library of the tests: it counts.
func hook(t *testing.T) string {
	return build(t, "hook.so", func(out string) *exec.Cmd {
		return exec.Command("cc", "-O2", "-Wall", "-Werror", "-fPIC", "-ffreestanding", "-nostdlib", "-shared", "-fvisibility=hidden",
			"-fno-stack-protector", "-Wl,-Bsymbolic", "-Wl,-z,norelro", "-mgeneral-regs-only", "-I../preload", "-o", out, "../preload/free/trace.c", "../preload/free/boot.c", "testdata/hook.c")
	})
}

// goVariants are ways to build a program of Go.
var goVariants = map[string][]string{"static": nil, "stripped": {"-ldflags=-s -w"}, "pie": {"-buildmode=pie"}, "strippedpie": {"-buildmode=pie", "-ldflags=-s -w"}}

func goProgram(t *testing.T, variant string) string {
	return build(t, "go-"+variant, func(out string) *exec.Cmd {
		cmd := exec.Command("go", append(append([]string{"build", "-o", out}, goVariants[variant]...), "testdata/goprogram/main.go")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		return cmd
	})
}

// result is what a program of the tests prints at its end.
type result struct {
	Self       string
	PID        int
	Wrong      int
	Calls      int
	stderr     string
	statusText string
}

// run runs a program of the tests with a library, and reads what it prints.
func run(t *testing.T, library, program, args string, environ ...string) result {
	t.Helper()
	words := strings.Fields(args)
	cmd := exec.Command("/proc/self/exe", append([]string{program}, words...)...)
	cmd.Args[0] = "launcher"
	cmd.Env = append(append(os.Environ(), libraryEnv+"="+library, "EXN_TEST_ARGS="+args), environ...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Minute
	out, err := cmd.Output()
	r := result{stderr: stderr.String(), statusText: fmt.Sprint(err)}
	if _, scan := fmt.Sscanf(string(out), "self %s pid %d wrong %d calls %d", &r.Self, &r.PID, &r.Wrong, &r.Calls); scan != nil || err != nil {
		t.Fatalf("%s: %v, %v\n%s%s", program, scan, err, out, r.stderr)
	}
	if r.PID != cmd.Process.Pid {
		t.Errorf("%s has process ID %d, was started as %d", program, r.PID, cmd.Process.Pid)
	}
	if r.Self != program || r.Wrong != 0 {
		t.Errorf("%s: %+v", program, r)
	}
	return r
}

// A Go program has its system calls come to the library, however it was built.
func TestGo(t *testing.T) {
	library := hook(t)
	for variant := range goVariants {
		t.Run(variant, func(t *testing.T) {
			program := goProgram(t, variant)
			args := "short"
			if variant == "static" {
				args = ""
			}
			if r := run(t, library, program, args); r.Calls < 20 || r.stderr != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// cVariants are ways to build a program of C.
var cVariants = map[string][]string{"glibc": {"cc", "-static"}, "glibcpie": {"cc", "-static-pie"}, "musl": {"musl-gcc", "-static"}, "muslO0": {"musl-gcc", "-static", "-O0"}}

func cProgram(t *testing.T, variant string) string {
	return build(t, "c-"+variant, func(out string) *exec.Cmd {
		how := cVariants[variant]
		return exec.Command(how[0], append([]string{"-O2", "-Wall", "-o", out, "testdata/cprogram/main.c", "-pthread"}, how[1:]...)...)
	})
}

// A static program in C has its system calls come to the library, with threads and children.
func TestC(t *testing.T) {
	library := hook(t)
	for variant := range cVariants {
		t.Run(variant, func(t *testing.T) {
			if r := run(t, library, cProgram(t, variant), ""); r.Calls < 1600 || r.stderr != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// goSites is how many places a program of Go has.
var goSites = map[string]int{"amd64": 3, "arm64": 3}

// A program of Go is known as such without its build information, which esbuild's build leaves
// out, and is left alone if its sections do not say so either: the hooks for C would run on a
// goroutine's stack.
func TestFindGoUnnamed(t *testing.T) {
	for variant := range goVariants {
		whole, err := os.ReadFile(goProgram(t, variant))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(whole, []byte("\xff Go buildinf:")) {
			t.Fatal(variant, "has no build information")
		}
		unnamed := bytes.ReplaceAll(whole, []byte("\xff Go buildinf:"), make([]byte, 14))
		path := filepath.Join(t.TempDir(), "unnamed")
		if err := os.WriteFile(path, unnamed, 0o700); err != nil {
			t.Fatal(err)
		}
		if p, err := findProgram(path, false, ""); err != nil || !p.isGo || len(p.sites) != goSites[runtime.GOARCH] {
			t.Errorf("%s: %+v, %v", variant, p, err)
		}
		const sections = 0x3c // e_shnum, e_shstrndx
		hidden := append(append(slices.Clone(unnamed[:sections]), 0, 0, 0, 0), unnamed[sections+4:]...)
		if err := os.WriteFile(path, hidden, 0o700); err != nil {
			t.Fatal(err)
		}
		want := errHidden
		if strings.HasSuffix(variant, "pie") {
			want = errDynamic // the dynamic linker runs it
		}
		if p, err := findProgram(path, false, ""); !errors.Is(err, want) {
			t.Errorf("%s without sections: %+v, %v", variant, p, err)
		}
	}
}

// TestFindGo: findProgram returns the place of Syscall6, as the symbols have it.
func TestFindGo(t *testing.T) {
	for variant := range goVariants {
		path := goProgram(t, variant)
		p, err := findProgram(path, false, "")
		if err != nil || len(p.sites) != goSites[runtime.GOARCH] || !p.isGo || p.movable != strings.HasSuffix(variant, "pie") {
			t.Errorf("%s: %+v, %v", variant, p, err)
			continue
		}
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.Symbols()
		if strings.HasPrefix(variant, "stripped") {
			if err == nil {
				t.Errorf("%s has symbols", variant)
			}
			continue
		}
		found := false
		for _, s := range symbols {
			name := strings.TrimSuffix(s.Name, ".abi0")
			if strings.HasSuffix(name, "runtime/syscall/linux.Syscall6") || strings.HasSuffix(name, "runtime/syscall.Syscall6") {
				found = found || s.Value == p.sites[0].at-goCallAt
			}
		}
		if !found {
			t.Errorf("%s: no Syscall6 at %#x", variant, p.sites[0].at)
		}
	}
}

// A program runs plain, and why is said, if the library does not start.
func TestNoStart(t *testing.T) {
	r := run(t, hook(t), goProgram(t, "static"), "short", "EXN_TEST_FAIL=5")
	if r.Calls != 0 || !strings.Contains(r.stderr, "starting the library: input/output error") {
		t.Errorf("%+v", r)
	}
}

// The library learns which of the first descriptors are open.
func TestOpenNumbers(t *testing.T) {
	program := goProgram(t, "static")
	for extra := range 3 {
		cmd := exec.Command("/proc/self/exe", program, "short")
		cmd.Env = append(os.Environ(), libraryEnv+"="+hook(t), "EXN_TEST_ARGS=short", "EXN_TEST_FAIL=o")
		for range extra {
			cmd.ExtraFiles = append(cmd.ExtraFiles, os.Stderr)
		}
		want := fmt.Sprintf("starting the library: %v\n", unix.EPERM)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%d more than three: %v, %q, want %q", extra, err, out, want)
		}
	}
}

// Whatever is no library for it leaves a program plain.
func TestNoLibrary(t *testing.T) {
	other := build(t, "other.so", func(out string) *exec.Cmd {
		cmd := exec.Command("cc", "-shared", "-nostdlib", "-o", out, "-x", "c", "-")
		cmd.Stdin = strings.NewReader("extern int x(void); int y(void) { return x(); }")
		return cmd
	})
	for path, want := range map[string]string{"/none": "no such file", "/proc/self/exe": errLibrary.Error(), other: errLibrary.Error()} {
		if r := run(t, path, goProgram(t, "static"), "short"); r.Calls != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

// A tracer that is killed at any step leaves the program plain or whole.
func TestKilledTracer(t *testing.T) {
	library, program := hook(t), goProgram(t, "pie")
	plain := 0
	for n := range 1000 {
		r := run(t, library, program, "short", killEnv+"="+strconv.Itoa(n))
		if r.Calls == 0 {
			plain++
			continue
		}
		if n-plain > 3 { // the tracer has committed, and not been killed any more
			t.Logf("killed at %d steps before the program was whole", plain)
			break
		}
	}
	if plain < 8 {
		t.Errorf("plain after %d steps", plain)
	}
}

// The program's memory has no page that can be written and executed.
func TestPages(t *testing.T) {
	if r := run(t, hook(t), goProgram(t, "static"), "maps"); strings.Contains(r.stderr, "wx") || !strings.Contains(r.stderr, "hook.so") {
		t.Errorf("%s", r.stderr)
	}
}

package preload

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/internal/cbuild"
	"exnet/internal/longtest"
)

// The probes (probes/) print a transcript of what they see of sockets. Without the
// library it is the kernel's, and with it must be the same. They use two variables:
// LD_PRELOAD, and what startBroker returns.

// notDirect is the exit status of a probe whose connections did not become direct.
const notDirect = 3

// notUncounted is that of a probe whose connections were not uncounted when it began to use them.
const notUncounted = 4

// Set by the first test that needs them; buildMu guards them.
var (
	plainProbes string   // the path of the probes
	plainCat    []string // what staticCat returns
)

// kernels are the transcripts of probes without the library, each made once: functions of the type
// func() (string, int), by environment and command.
var kernels sync.Map

// testProbes returns the path of the probes, built by the first test that needs them.
func testProbes(t *testing.T) string {
	t.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	if plainProbes == "" {
		plainProbes = compileProbes(t, buildDir, nil)
	}
	return plainProbes
}

// compileProbes returns the path of the probes, built in dir with more flags and files.
func compileProbes(t *testing.T, dir string, flags []string, more ...string) string {
	t.Helper()
	path := filepath.Join(dir, "probes")
	files, err := filepath.Glob("probes/*.c")
	if err != nil || len(files) == 0 {
		t.Fatalf("no probes (%v)", err)
	}
	compileC(t, path, cbuild.Command{
		Flags: append([]string{"-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result"}, flags...),
		Files: append(files, more...),
		Libs:  []string{"-ldl", "-lpthread"},
	})
	return path
}

// staticCat builds a statically linked cat if that can be done here, and returns the environment by
// which the probes of exec find it.
func staticCat(t *testing.T) []string {
	t.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	if plainCat != nil {
		return plainCat
	}
	path := filepath.Join(buildDir, "cat")
	out, err := exec.CommandContext(t.Context(), "cc", "-O1", "-static", "probes/static/cat.c", "-o", path).CombinedOutput()
	if err != nil {
		t.Logf("no static libraries, so the dynamic cat is used: %v\n%s", err, out)
		return nil
	}
	plainCat = []string{"PROBE_CAT=" + path}
	return plainCat
}

// warned are the flags of programs of one or two files.
var warned = []string{"-O1", "-Wall", "-Wextra", "-Werror"}

// compileC compiles a program or library.
func compileC(t *testing.T, path string, c cbuild.Command) {
	t.Helper()
	c.Flags = append(slices.Clone(c.Flags), "-I../../node/rpc/c")
	if err := c.Run(t.Context(), path); err != nil {
		if said := new(cbuild.Error); errors.As(err, &said) {
			t.Log(said.Output)
		}
		t.Fatal(err)
	}
}

// startBroker runs a broker for this test, and returns the environment by which
// programs find it and include loopback addresses.
func startBroker(t *testing.T) []string {
	t.Helper()
	_, env := newBroker(t)
	return env
}

// newBroker is startBroker for tests that ask the broker.
func newBroker(t *testing.T) (*broker.Server, []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker")
	server, end := runBroker(t, path)
	t.Cleanup(end)
	return server, brokerEnv(path)
}

// brokerEnv is the environment by which programs find a broker and include loopback addresses.
func brokerEnv(path string) []string { return []string{"EXNET_LOOPBACK=1", "EXNET_BROKER=" + path} }

// runBroker runs a broker at path until end is called.
func runBroker(t *testing.T, path string) (s *broker.Server, end func()) {
	t.Helper()
	s, err := broker.New(broker.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func probeNames(t *testing.T, probes string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), probes, "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(out))
	if len(names) < 60 {
		t.Fatalf("%d probes, want at least 60", len(names))
	}
	return names
}

// probe runs one and returns its transcript and exit status.
func probe(t *testing.T, env []string, command ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Errorf("%v: %v", command, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// kernelSays returns the transcript of a probe without the library, which has to succeed.
func kernelSays(t *testing.T, env []string, command ...string) string {
	t.Helper()
	key := strings.Join(slices.Concat(env, command), "\x00")
	once, _ := kernels.LoadOrStore(key, sync.OnceValues(func() (string, int) { return probe(t, env, command...) }))
	said, status := once.(func() (string, int))()
	if status != 0 {
		t.Fatalf("without the library: exit status %d\n%s", status, said)
	}
	return said
}

// compareProbe fails t unless the probe sees the same with env as without, with both in either.
func compareProbe(t *testing.T, both, env []string, command ...string) {
	t.Helper()
	want := kernelSays(t, both, command...)
	got, status := probe(t, slices.Concat(both, env), command...)
	if status == notDirect {
		t.Error("the connections did not become direct")
	} else if status == notUncounted {
		t.Error("no connection was uncounted")
	} else if status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got != want {
		t.Errorf("without the library:\n%s\nwith it:\n%s", want, got)
	}
}

// slow are probes that take long, and learn nothing of uncounted connections that no other learns.
var slow = strings.Fields(`linger-full cancel-calls crowd many-connections relisten refused nested-modes signal-jump
	signal-jump-waiting blocking-send large sizes edge-stress linger-read linger-ends eintr timeouts errno-wait`)

// handsOver matches probes in which a connection gets another descriptor or process.
var handsOver = regexp.MustCompile(`^(apart|dup|exec|fork|vfork|inherited|sharers|share|spawn)`)

func TestProbes(t *testing.T) {
	t.Parallel()
	library, probes, cat := testLibrary(t), testProbes(t), staticCat(t)
	env := append(startBroker(t), "LD_PRELOAD="+library)
	both := cat
	if testing.Short() {
		both = append(slices.Clone(cat), "PROBE_SHORT=1") // the probes of thousands of rounds have a tenth of them
	}
	for _, name := range probeNames(t, probes) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of them wait
			compareProbe(t, both, env, probes, name)
		})
		if testing.Short() || strings.HasPrefix(name, "uncounted-") { // which has one form
			continue
		}
		// From the first byte on, so that what the probe does meets the set-up.
		t.Run(name+"/cold", func(t *testing.T) {
			t.Parallel()
			compareProbe(t, cat, env, probes, name, "cold")
		})
		// From a connection on that the library knows only lightly yet, before its first request
		// and after it.
		for _, form := range []string{"uncounted", "uncounted-1"} {
			if slices.Contains(slow, name) || strings.HasPrefix(name, "udp-") || form == "uncounted-1" && !handsOver.MatchString(name) {
				continue
			}
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				compareProbe(t, cat, env, probes, name, form)
			})
		}
	}
}

// A probe that is on TCP by mistake says so.
func TestProbesNotDirect(t *testing.T) {
	t.Parallel()
	library, probes := testLibrary(t), testProbes(t)
	env := append(startBroker(t), "LD_PRELOAD="+library, "PROBE_WARM=300")
	for _, more := range []string{"EXNET_BROKER=/nowhere", "EXNET_LOOPBACK=0", "EXNET_RULES=t * * 00000000000000000000000000000000 0 0 65535"} {
		got, status := probe(t, append(env, more), probes, "echo")
		want := kernelSays(t, nil, probes, "echo")
		if status != notDirect || got != want {
			t.Errorf("%s: exit status %d, want %d\n%s", more, status, notDirect, got)
		}
	}
}

// librarySources returns the C files of the library.
func librarySources(t *testing.T) []string {
	t.Helper()
	var sources []string
	for _, layer := range []string{"segment", "conn", "fd", "hooks"} {
		files, err := filepath.Glob(layer + "/*.c")
		if err != nil || len(files) == 0 {
			t.Fatalf("no sources in %s (%v)", layer, err)
		}
		sources = append(sources, files...)
	}
	return sources
}

// All probes once more with the address and undefined-behaviour sanitizers in the library.
func TestProbesAddressSanitizer(t *testing.T) {
	needCompiler(t)
	longtest.Skip(t) // takes a minute
	t.Parallel()
	asan := sanitizerLibrary(t, "libasan.so")
	library := filepath.Join(t.TempDir(), Name)
	compileC(t, library, cbuild.Command{
		Flags: append(slices.Clone(source.Flags), "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"),
		Files: librarySources(t), Libs: source.Libs,
	})
	probes, cat := testProbes(t), staticCat(t)
	env := append(startBroker(t), "LD_PRELOAD="+asan+" "+library, "ASAN_OPTIONS=detect_leaks=0", "PROBE_STACK=65536")
	for _, name := range probeNames(t, probes) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switch {
			case strings.HasPrefix(name, "pointers"):
				t.Skip("the sanitizer's own functions, which come first, read what the probe gives them")
			case name == "inherited-sandbox", strings.HasPrefix(name, "sealed"):
				t.Skip("the sanitizer makes system calls that the sandbox of the probe does not allow")
			case name == "vfork-nested":
				t.Skip("the sanitizer's vfork keeps one return address")
			case name == "cancel-async":
				t.Skip("the sanitizer's functions cannot be cancelled at any instruction: what they poison on the stack stays poisoned")
			}
			compareProbe(t, cat, env, probes, name)
		})
	}
}

// All probes once more with a pattern in each variable of the library's functions that they have
// not written to yet. What a stack happens to hold, mostly zeros, hides that such a variable is
// read.
func TestProbesUninitialized(t *testing.T) {
	needCompiler(t)
	longtest.Skip(t) // takes a minute
	t.Parallel()
	library := filepath.Join(t.TempDir(), Name)
	compileC(t, library, cbuild.Command{
		Flags: append(slices.Clone(source.Flags), "-O1", "-g", "-ftrivial-auto-var-init=pattern"),
		Files: librarySources(t), Libs: source.Libs,
	})
	probes, cat := testProbes(t), staticCat(t)
	env := append(startBroker(t), "LD_PRELOAD="+library)
	for _, name := range probeNames(t, probes) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareProbe(t, cat, env, probes, name)
		})
	}
}

func sanitizerLibrary(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cc", "-print-file-name="+name).Output()
	path := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(path) {
		t.Skipf("the compiler has no %s", name)
	}
	return path
}

// Probes with threads, linked with the library under the thread sanitizer.
func TestProbesThreadSanitizer(t *testing.T) {
	needCompiler(t)
	longtest.Skip(t) // takes a minute
	t.Parallel()
	sanitizerLibrary(t, "libtsan.so")
	flags := []string{"-std=gnu11", "-I.", "-fsanitize=thread", "-Wno-tsan", "-fexceptions", "-fno-strict-aliasing", "-rdynamic"}
	// The sanitizer maps memory before it can bear a function that it watches.
	sources := slices.DeleteFunc(librarySources(t), func(name string) bool { return name == "hooks/memory.c" })
	linked := compileProbes(t, t.TempDir(), flags, sources...)
	probes, cat := testProbes(t), staticCat(t)
	// A probe whose thread receives on a number that others close has a race of its own there,
	// which the sanitizer's functions see.
	numbers := filepath.Join(t.TempDir(), "numbers")
	if err := os.WriteFile(numbers, []byte("race:sanitizer_common_interceptors.inc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(slices.Concat(cat, startBroker(t)), "TSAN_OPTIONS=die_after_fork=0 exitcode=66")
	for _, name := range []string{"threads-share", "duplex", "cancel", "shutdown-wakes", "shutdown-wakes-writers", "timeouts", "eintr", "waitall", "poll-sleeps",
		"epoll-threads", "epoll-join-ready", "epoll-exclusive", "epoll-nested", "epoll-polled", "epoll-two", "epoll-mixed",
		"threads-delete", "threads-random", "share-sets-three", "share-set-poll", "share-recv-set", "share-set-nested", "share-no-set", "share-taken-over",
		"order-racing", "order-mixed", "order-idle", "order-processes", "order-poll", "reuse-close", "reuse-shutdown", "reuse-several", "reuse-sets-direct", "uncounted-threads", "uncounted-settling", "uncounted-renumbered", "edge-both", "oneshot-modes", "nested-modes", "epoll-random-1",
		"leave-rest-exit", "leave-rest-exit-threads", "leave-rest-exit-more", "leave-rest-once", "leave-rest-once-threads"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := slices.Clone(env)
			if name == "uncounted-renumbered" {
				env[len(env)-1] += " suppressions=" + numbers
			}
			want := kernelSays(t, cat, probes, name)
			got, status := probe(t, env, linked, name)
			if status != 0 || got != want {
				t.Errorf("exit status %d\nwithout the library:\n%s\nwith it:\n%s", status, want, got)
			}
		})
	}
}

package preload

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/internal/tempdir"
)

func needCompiler(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
}

// buildDir is where the library and the probes are built for all tests of this package, by one
// test at a time, which has buildMu.
var (
	buildDir string
	buildMu  sync.Mutex
)

func TestMain(m *testing.M) {
	dir, err := tempdir.New("preload-test")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	status := m.Run()
	_ = tempdir.Remove(dir)
	os.Exit(status)
}

// testLibrary returns the path of the library, built by the first test that needs it.
func testLibrary(t *testing.T) string {
	t.Helper()
	needCompiler(t)
	buildMu.Lock()
	defer buildMu.Unlock()
	path, err := source.BuildIn(t.Context(), buildDir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The library is built once, and programs see no function of it but those that it takes over.
func TestBuild(t *testing.T) {
	path := testLibrary(t)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(testLibrary(t)); err != nil || !os.SameFile(before, after) {
		t.Error("built again what was there")
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && strings.HasPrefix(s.Name, "ds_") {
			t.Errorf("%s is visible to programs", s.Name)
		}
	}
}

// The tests in C: golden vectors, random operations, hostile peers; also under the sanitizers.
func TestC(t *testing.T) {
	needCompiler(t)
	if testing.Short() {
		t.Skip("builds everything three times")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	makeC(ctx, t, "check")
}

// makeC runs make in this folder.
func makeC(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "make", append([]string{"-s", "-j2", "BUILD=" + t.TempDir()}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		text := string(out)
		t.Fatalf("%v: %v\n%s", cmd, err, text[max(0, len(text)-4000):])
	}
}

// emulated are the C tests that an emulator can run: qemu-user 7.2 knows no TCP_INFO, without which
// no connection goes direct (sock_test, broker_test, absent_test, follow_test), and does nothing
// for madvise's POPULATE, by which memory is found that a call may not touch (memory_test,
// data_test).
const emulated = "golden_test wire_test lock_test segment_test ring_test"

// The library compiles without a warning for what else it is installed on, and passes its tests
// there: musl, and arm64 under an emulator.
func TestOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds everything once more")
	}
	t.Parallel()
	for _, kind := range []struct {
		name  string
		tools []string
		args  []string
	}{
		{"musl", []string{"musl-gcc"}, []string{"LIBC=musl", "all", "units"}},
		{"arm64", []string{"aarch64-linux-gnu-gcc", "qemu-aarch64-static"}, []string{"CC=aarch64-linux-gnu-gcc",
			"RUN=qemu-aarch64-static -L /usr/aarch64-linux-gnu", "TESTS=" + emulated, "all", "units"}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for _, tool := range kind.tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skip("no ", tool)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
			defer cancel()
			makeC(ctx, t, kind.args...)
		})
	}
}

package preload

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/internal/longtest"
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

// What a program without a socket runs of the library lies in the 64 KiB that the kernel maps at
// the first touch of its headers, and what it writes in the page where the dynamic linker writes.
// That looks up only what is called, and makes no page read-only.
func TestStartPages(t *testing.T) {
	f, err := elf.Open(testLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var image, data *elf.Prog
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_GNU_RELRO:
			t.Error("the library has a part that becomes read-only")
		case p.Type == elf.PT_LOAD && p.Flags&elf.PF_W != 0:
			data = p
		case p.Type == elf.PT_LOAD && image == nil:
			image = p
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_FLAGS, elf.DT_FLAGS_1} {
		flags, err := f.DynValue(tag)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range flags {
			if tag == elf.DT_FLAGS && elf.DynFlag(v)&elf.DF_BIND_NOW != 0 || tag == elf.DT_FLAGS_1 && elf.DynFlag1(v)&elf.DF_1_NOW != 0 {
				t.Error("all functions are looked up before the program begins")
			}
		}
	}
	near := func(size uint64, p *elf.Prog, names string) {
		for _, name := range strings.Fields(names) {
			i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
			if i < 0 {
				t.Errorf("no %s", name)
			} else if from, s := p.Vaddr&^(size-1), symbols[i]; s.Value < from || s.Value+s.Size > from+size {
				t.Errorf("%s at %#x, not in the %#x bytes from %#x on", name, s.Value, size, from)
			}
		}
	}
	near(1<<16, image, `start stop ds_real_init ds_next_all ds_own_path signals_init ds_env_keep ds_tell fd_tell ep_init vfork_init
		inherit_take fd_leave`)
	near(1<<12, data, "ds_real ds_real_ready libc_functions ds_above fd_notices fd_tab fd_tab_size")
}

// The tests in C: golden vectors, random operations, hostile peers; also under the sanitizers.
func TestC(t *testing.T) {
	needCompiler(t)
	longtest.Skip(t) // builds everything three times
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	makeC(ctx, t, "check")
}

// The tests in C under clang's MemorySanitizer, which must find a fault that is planted.
func TestUninitialized(t *testing.T) {
	needCompiler(t)
	longtest.Skip(t) // builds everything once more
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("no clang, which has MemorySanitizer")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	makeC(ctx, t, "msan")
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
// no connection goes direct (sock_test, wait_test, broker_test, uncounted_test, absent_test,
// follow_test), and does nothing for madvise's POPULATE, by which memory is found that a call may
// not touch (memory_test, data_test).
const emulated = "golden_test wire_test lock_test segment_test breach_test ring_test"

// The library compiles without a warning for what else it is installed on, and passes its tests
// there: musl, and arm64 under an emulator.
func TestOthers(t *testing.T) {
	longtest.Skip(t) // builds everything once more
	t.Parallel()
	for _, kind := range []struct {
		name  string
		tools []string
		args  []string
	}{
		{"musl", []string{"musl-gcc"}, []string{"LIBC=musl", "all", "units"}},
		{"arm64", []string{"aarch64-linux-gnu-gcc", "qemu-aarch64-static"}, []string{"CC=aarch64-linux-gnu-gcc",
			"RUN=qemu-aarch64-static -L /usr/aarch64-linux-gnu", "TESTS=" + emulated, "all", "free", "units"}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for _, tool := range kind.tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skip("no ", tool)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			makeC(ctx, t, kind.args...)
		})
	}
}

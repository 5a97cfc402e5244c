package preload

import (
	"debug/elf"
	"os/exec"
	"runtime"
	"testing"

	"exnet/internal/cbuild"
	"exnet/internal/longtest"
)

// freeLibrary returns the path of the library without a C library, built by the first test that
// needs it.
func freeLibrary(t *testing.T) string {
	t.Helper()
	needCompiler(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the programs of these tests are for amd64")
	}
	buildMu.Lock()
	defer buildMu.Unlock()
	path, err := free.BuildIn(t.Context(), buildDir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// What maps the library into a program needs no dynamic linker.
func TestFreeBuild(t *testing.T) {
	t.Parallel()
	checkFree(t, freeLibrary(t), runtime.GOARCH)
}

// It builds for arm64 as well.
func TestFreeBuildArm64(t *testing.T) {
	const compiler = "aarch64-linux-gnu-gcc"
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skip(err)
	}
	longtest.Skip(t)
	t.Setenv("CC", compiler)
	source := free
	source.Flags = freeFlags("arm64")
	path, err := source.BuildIn(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	checkFree(t, path, "arm64")
}

func checkFree(t *testing.T, path, arch string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS || p.Type == elf.PT_LOAD && p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			t.Errorf("%v %v", p.Type, p.Flags)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_SECTION {
			continue
		}
		names[s.Name] = true
		if s.Section == elf.SHN_UNDEF {
			t.Errorf("%s is undefined", s.Name)
		}
	}
	wanted, relative := []string{"ds_free_trace", "ds_free_boot", "ds_free_start", "ds_free_entry", "ds_free_go", "ds_free_poll", "ds_free_version"}, uint32(elf.R_X86_64_RELATIVE)
	if arch == "amd64" {
		wanted = append(wanted, "ds_free_signal")
	} else {
		wanted, relative = append(wanted, "ds_free_behind"), uint32(elf.R_AARCH64_RELATIVE)
	}
	for _, want := range wanted {
		if !names[want] {
			t.Errorf("no %s", want)
		}
	}
	if len(names) != len(wanted) {
		t.Errorf("%d symbols: %v", len(names), names)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA {
			continue
		}
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+24 <= len(data); at += 24 {
			if kind := f.ByteOrder.Uint32(data[at+8:]); kind != relative {
				t.Fatalf("%s: a relocation %v", s.Name, kind)
			}
		}
	}
}

// The kernel's clock, which the library reads for a static program, changes no vector register.
func TestFreeClock(t *testing.T) {
	t.Parallel()
	needCompiler(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the program of this test is for amd64")
	}
	program := t.TempDir() + "/clock"
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"testdata/clock.c"}, Libs: []string{"-ldl"}})
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A static program whose system calls come to the library exchanges data directly: between threads,
// between processes, and by Go's way in.
func TestFree(t *testing.T) {
	t.Parallel()
	library := freeLibrary(t)
	program := t.TempDir() + "/free"
	compileC(t, program, cbuild.Command{
		Flags: append([]string{"-static"}, warned...), Files: []string{"testdata/free.c"}, Libs: []string{"-lpthread"},
	})
	for _, how := range []string{"threads", "processes", "go"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server, env := newBroker(t)
			// A busy machine may end them before they are direct.
			for runs := 0; server.Stats().Claimed < 3; runs++ {
				if out, status := probe(t, env, program, library, how, "300"); status != 0 {
					t.Fatalf("status %d\n%s", status, out)
				}
				if runs == 100 {
					t.Fatalf("%d of %d connections were direct", server.Stats().Claimed, 3*runs)
				}
			}
		})
	}
}

// Children by vfork, fork and clone, and threads by clone, leave the caller its slot and its
// connection, by C's way in and by Go's.
func TestFreeChildren(t *testing.T) {
	t.Parallel()
	library := freeLibrary(t)
	program := t.TempDir() + "/freechildren"
	compileC(t, program, cbuild.Command{
		Flags: append([]string{"-static"}, warned...), Files: []string{"testdata/freechildren.c"}, Libs: []string{"-lpthread"},
	})
	server, env := newBroker(t)
	for runs := 0; server.Stats().Claimed == 0; runs++ {
		if out, status := probe(t, env, program, library); status != 0 {
			t.Fatalf("status %d\n%s", status, out)
		}
		if runs == 100 {
			t.Fatal("no connection was direct")
		}
	}
}

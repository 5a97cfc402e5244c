package elffile

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// read is what this package finds in a file.
type read struct {
	Machine
	interpreter string
	needed      []string
	modules     []string
	isGo        bool
}

func readFile(path string) (r read, err error) {
	f, err := Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	r = read{Machine: f.Machine, interpreter: f.Interpreter()}
	if r.needed, err = f.Needed(); err != nil {
		return r, err
	}
	r.isGo = f.IsGo()
	r.modules, err = f.Modules()
	if err != nil && !errors.Is(err, ErrNotGo) {
		return r, err
	}
	return r, nil
}

// readByDebug is the same by the standard library.
func readByDebug(path string) (r read, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	r.ID, r.Bits = uint16(f.Machine), map[elf.Class]int{elf.ELFCLASS32: 32, elf.ELFCLASS64: 64}[f.Class]
	if s := f.Section(".interp"); s != nil {
		text, err := s.Data()
		if err != nil {
			return r, err
		}
		r.interpreter = strings.TrimRight(string(text), "\x00")
	}
	if r.needed, err = f.ImportedLibraries(); err != nil {
		return r, err
	}
	info, err := buildinfo.ReadFile(path)
	if r.isGo = err == nil; r.isGo {
		if info.Main.Path != "" {
			r.modules = append(r.modules, info.Main.Path)
		}
		for _, m := range info.Deps {
			r.modules = append(r.modules, m.Path)
		}
	}
	return r, nil
}

// Programs of this host are read as debug/elf and debug/buildinfo read them.
func TestAsDebug(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{self}
	if tool, err := exec.LookPath("go"); err == nil {
		paths = append(paths, tool)
	}
	for _, pattern := range []string{"/bin/*", "/usr/sbin/*", "/usr/lib/*-linux-*/lib*.so*"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, more[:min(len(more), 150)]...)
	}
	compared, goPrograms := 0, 0
	for _, path := range paths {
		want, err := readByDebug(path)
		if err != nil {
			continue // a script, a folder
		}
		got, err := readFile(path)
		if err != nil || got.Machine != want.Machine || got.interpreter != want.interpreter || got.isGo != want.isGo ||
			!slices.Equal(got.needed, want.needed) || !slices.Equal(got.modules, want.modules) {
			t.Errorf("%s: %+v, %v, want %+v", path, got, err, want)
		}
		compared++
		if want.isGo {
			goPrograms++
		}
	}
	if compared == 0 || goPrograms == 0 {
		t.Errorf("%d files compared, %d of Go", compared, goPrograms)
	}
}

func TestMachines(t *testing.T) {
	for name, want := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV,
		"ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "386": elf.EM_386, "arm": elf.EM_ARM} {
		if Machines[name].ID != uint16(want) {
			t.Errorf("%s: %+v, want %d", name, Machines[name], want)
		}
	}
}

// A Go program without section headers is known by its build information.
func TestNoSections(t *testing.T) {
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const sectionHeaders = 58 // e_shentsize, e_shnum and e_shstrndx, 2 bytes each
	clear(text[sectionHeaders : sectionHeaders+6])
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, _, ok := f.Place(".text"); ok || !f.IsGo() {
		t.Errorf("sections: %t, Go: %t", ok, f.IsGo())
	}
}

// A file that is cut anywhere is an error, or says less: it never panics.
func TestCut(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := make([]byte, 8<<10)
	if _, err := f.ReadAt(text, 0); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut")
	for n := 0; n < len(text); n += 13 {
		if err := os.WriteFile(path, text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := readFile(path); err == nil && len(r.modules) > 0 {
			t.Errorf("%d bytes: %+v", n, r)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, path := range []string{"/proc/self/exe", "/bin/true"} {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(text[:min(len(text), 64<<10)])
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = readFile(path) // it must not panic
	})
}

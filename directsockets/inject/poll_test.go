//go:build amd64

package inject

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"exnet/internal/elffile"
)

// The call by which a goroutine waits is found in each form of a program, and leads where the
// symbols say.
func TestPollSite(t *testing.T) {
	for variant := range goVariants {
		t.Run(variant, func(t *testing.T) {
			path := goProgram(t, variant)
			f, err := elffile.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s, ok := pollSite(f)
			if !ok {
				t.Fatal("no call")
			}
			symbols := functionsOf(t, path)
			if symbols == nil {
				return // it is stripped
			}
			if to := symbols[pollWait]; to.entry != s.calls {
				t.Errorf("it calls what is at %#x, and %s is at %#x", s.calls, pollWait, to.entry)
			}
			if from := symbols[pollCalling]; s.at < from.entry || s.at+jumpSize > from.end {
				t.Errorf("the call is at %#x, and %s at %#x", s.at, pollCalling, from.entry)
			}
		})
	}
}

// functionsOf returns the functions by the symbols of a program; nil: it has none.
func functionsOf(t *testing.T, path string) map[string]function {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil
	}
	found := make(map[string]function)
	for _, s := range symbols {
		found[s.Name] = function{s.Value, s.Value + s.Size}
	}
	return found
}

// A table of functions that is damaged in any byte of its head leads to no call, or to the same.
func TestPollSiteDamaged(t *testing.T) {
	whole, err := os.ReadFile(goProgram(t, "static"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.Open(goProgram(t, "static"))
	if err != nil {
		t.Fatal(err)
	}
	_, off, _, ok := f.Place(".gopclntab")
	want, found := pollSite(f)
	f.Close()
	if !ok || !found {
		t.Fatal("no table, or no call")
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range uint64(72) {
		for _, bad := range []byte{0, 0x7f, 0xff} {
			at := int64(off + i)
			if _, err := w.WriteAt([]byte{bad}, at); err != nil {
				t.Fatal(err)
			}
			f, err := elffile.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := pollSite(f); ok && (s.at != want.at || s.calls != want.calls) {
				t.Errorf("byte %d is %#x: a call at %#x", i, bad, s.at)
			}
			f.Close()
			if _, err := w.WriteAt(whole[at:at+1], at); err != nil {
				t.Fatal(err)
			}
		}
	}
}

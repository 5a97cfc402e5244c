//go:build amd64

package inject

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"exnet/internal/elffile"
)

// The calls that lead to the library are found in each form of a program, where its symbols say.
func TestCallSites(t *testing.T) {
	for variant := range goVariants {
		t.Run(variant, func(t *testing.T) {
			path := goProgram(t, variant)
			f, err := elffile.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			sites := callSites(f)
			if len(sites) != 2 || sites[0].to != symPoll || sites[1].to != symSignal {
				t.Fatalf("%+v", sites)
			}
			symbols := symbolsOf(t, path)
			if symbols == nil {
				return // it is stripped
			}
			for i, name := range [][2]string{{pollWait, pollCalling}, {signalHandler, signalCalling + ".abi0"}} {
				s := sites[i]
				if to := symbols[name[0]]; to.entry != s.calls {
					t.Errorf("it calls what is at %#x, and %s is at %#x", s.calls, name[0], to.entry)
				}
				if from := symbols[name[1]]; s.at < from.entry || s.at+jumpSize > from.end {
					t.Errorf("the call is at %#x, and %s at %#x", s.at, name[1], from.entry)
				}
			}
		})
	}
}

// symbolsOf returns the functions by the symbols of a program; nil: it has none.
func symbolsOf(t *testing.T, path string) map[string]function {
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

// A table of functions that is damaged in any byte of its head leads to no calls, or to the same.
func TestCallSitesDamaged(t *testing.T) {
	whole, err := os.ReadFile(goProgram(t, "static"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.Open(goProgram(t, "static"))
	if err != nil {
		t.Fatal(err)
	}
	_, off, _, ok := f.Place(".gopclntab")
	want := callSites(f)
	f.Close()
	if !ok || len(want) != 2 {
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
			for _, s := range callSites(f) {
				if !slices.ContainsFunc(want, func(w site) bool { return s.at == w.at && s.calls == w.calls && s.to == w.to }) {
					t.Errorf("byte %d is %#x: a call at %#x", i, bad, s.at)
				}
			}
			f.Close()
			if _, err := w.WriteAt(whole[at:at+1], at); err != nil {
				t.Fatal(err)
			}
		}
	}
}

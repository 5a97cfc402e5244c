//go:build amd64

package inject

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"exnet/internal/elffile"
)

// keptFile returns the only file of a folder, which a tracer writes when its program runs.
func keptFile(t *testing.T, dir string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(dir, "places-*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 1 {
			return files[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("files %q", files)
		}
	}
}

// aged returns a program whose file is old enough that what is found in it is kept.
func aged(program string) string {
	time.Sleep(keptAge)
	return program
}

// The places of a program that was started before are those that would be found again, and they are
// read, not found.
func TestKept(t *testing.T) {
	for _, program := range []string{aged(cProgram(t, "glibc")), aged(goProgram(t, "static")), aged(goProgram(t, "strippedpie"))} {
		want, err := findProgram(program, false, "")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for range 2 {
			if r := run(t, hook(t), program, "short", keptEnv+"="+dir); r.Calls < 20 || r.stderr != "" {
				t.Errorf("%+v", r)
			}
			keptFile(t, dir)
		}
		got, err := findProgram(program, false, dir)
		if err != nil || !reflect.DeepEqual(got.sites, want.sites) {
			t.Errorf("%s: %+v, %v, want %+v", program, got.sites, err, want.sites)
		}
		if got.toKeep.path != "" {
			t.Errorf("%s: the places were found, not read", program)
		}
		if other, err := findProgram(aged(cProgram(t, "glibcpie")), false, dir); err != nil || other.toKeep.path == "" {
			t.Errorf("another program has the places of the first: %v", err)
		}
	}
}

// A program that has changed since, however its file's time was set, has its places looked for
// again, and one that has just changed has nothing kept.
func TestKeptChanged(t *testing.T) {
	dir, program := t.TempDir(), filepath.Join(t.TempDir(), "program")
	text, err := os.ReadFile(cProgram(t, "glibc"))
	if err != nil {
		t.Fatal(err)
	}
	write := func() {
		t.Helper()
		if err := errors.Join(os.WriteFile(program, text, 0o700), os.Chtimes(program, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	looked := func() bool {
		t.Helper()
		p, err := findProgram(program, false, dir)
		if err != nil {
			t.Fatal(err)
		}
		p.keepSites()
		return p.toKeep.path != ""
	}
	write()
	if looked() {
		t.Error("places of a file are kept that has just been written")
	}
	aged(program)
	if !looked() || looked() {
		t.Error("places are not kept, or not read")
	}
	write()
	aged(program)
	if !looked() {
		t.Error("a changed file has the places of the one before")
	}
}

// What is kept is used only as it was written, by this user, where nobody else can write.
func TestKeptRefused(t *testing.T) {
	program, dir := aged(cProgram(t, "glibc")), t.TempDir()
	p, err := findProgram(program, false, dir)
	if err != nil {
		t.Fatal(err)
	}
	p.keepSites()
	path := keptFile(t, dir)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reads := func() bool {
		t.Helper()
		again, err := findProgram(program, false, dir)
		if err != nil || !reflect.DeepEqual(again.sites, p.sites) {
			t.Fatalf("%d places, %v, want %d", len(again.sites), err, len(p.sites))
		}
		return again.toKeep.path == ""
	}
	if !reads() {
		t.Fatal("what was kept is not read")
	}
	for name, change := range map[string]func() error{
		"another writer": func() error { return os.Chmod(path, 0o620) },
		"shorter":        func() error { return os.Truncate(path, int64(len(good)-1)) },
		"empty":          func() error { return os.Truncate(path, 0) },
		"a link": func() error {
			return errors.Join(os.Rename(path, path+".other"), os.Symlink(path+".other", path))
		},
		"another's": func() error {
			if os.Geteuid() != 0 {
				return nil
			}
			return os.Chown(path, 1, 1)
		},
	} {
		if err := change(); err != nil {
			t.Fatal(name, err)
		}
		if reads() && (name != "another's" || os.Geteuid() == 0) {
			t.Errorf("%s: read", name)
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, good, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if i%97 == 0 && reads() {
			t.Errorf("byte %d changed: read", i)
		}
	}
}

// No place is taken from a file whose sums are right, if there is no system call or the jump does
// not begin where an instruction does.
func TestKeptPlaces(t *testing.T) {
	ways := map[way]bool{}
	for _, program := range []string{aged(cProgram(t, "glibc")), aged(goProgram(t, "static"))} {
		wrongPlaces(t, program, ways)
	}
	if len(ways) < 5 {
		t.Errorf("ways %v", ways)
	}
}

// wrongPlaces tries the first place of each way that is not among ways yet.
func wrongPlaces(t *testing.T, program string, ways map[way]bool) {
	t.Helper()
	dir := t.TempDir()
	p, err := findProgram(program, false, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range p.sites {
		_, how, _ := s.callPlace()
		if ways[how] {
			continue
		}
		ways[how] = true
		for name, change := range map[string]func(*site){
			"elsewhere": func(s *site) { s.at, s.via, s.calls = s.at+1, s.via+1, s.calls+1 },
			"outside":   func(s *site) { s.at, s.via = p.text.Addr+p.text.Size, p.text.Addr+p.text.Size },
			"twice":     func(s *site) { *s = p.sites[(i+1)%len(p.sites)] },
		} {
			sites := append([]site(nil), p.sites...)
			change(&sites[i])
			p.toKeep.writeSites(sites, p.text.Addr)
			again, err := findProgram(program, false, dir)
			if err != nil || !reflect.DeepEqual(again.sites, p.sites) {
				t.Errorf("way %d, %s: %v", how, name, err)
			} else if again.toKeep.path == "" {
				t.Errorf("way %d, %s: taken", how, name)
			}
		}
	}
}

// A program that got the library before is known, until its file changes.
func TestKnown(t *testing.T) {
	for _, program := range []string{aged(cProgram(t, "glibc")), aged(goProgram(t, "static"))} {
		dir := t.TempDir()
		f, err := elffile.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if Known(f, dir) {
			t.Errorf("%s is known before it was started", program)
		}
		run(t, hook(t), program, "short", keptEnv+"="+dir)
		if !Known(f, dir) || Known(f, t.TempDir()) || Known(f, "") {
			t.Errorf("%s is not known, or elsewhere", program)
		}
	}
}

package cbuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

func program(text string) Source {
	return Source{Name: "hello", Files: fstest.MapFS{"main.c": {Data: []byte(text)}}, Flags: []string{"-O1"}}
}

const good = "int main(void) { return 7; }\n"

// A home whose path LD_PRELOAD cannot hold is no place for a library.
func TestPlaces(t *testing.T) {
	for base, want := range map[string]int{"": 1, "/home/a/.cache": 2, "/home/my name/.cache": 1, "/home/a:b/.cache": 1} {
		if got := placesBelow(base); len(got) != want || want == 2 && got[0] != base+"/exnet" {
			t.Errorf("%q: %q", base, got)
		}
	}
}

// A build removes the folder of one that was killed, and not that of one that runs beside it.
func TestKilledBuild(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"build-1": 2 * time.Hour, "build-2": time.Minute, "another": 2 * time.Hour} {
		work := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(work, "conn"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(work, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	path, err := program(good).BuildIn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"another", "build-2", filepath.Base(path)}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%q is there, want %q (%v)", left, want, err)
	}
}

// Of many builders that begin at the same time one compiles, and all get its file. The compiler
// writes a line for each time that it runs, and compiles when all builders have begun: each has
// read its sources by then.
func TestBuildOnce(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	const builders = 8
	begun, runs := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "runs")
	cc := filepath.Join(t.TempDir(), "cc")
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' -c '*) echo run >>%s ;; esac\nwhile [ ! -e %s ]; do sleep 0.01; done\nexec cc \"$@\"\n", runs, begun)
	if err := os.WriteFile(cc, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", cc)
	dir := filepath.Join(t.TempDir(), "cache")
	var all sync.WaitGroup
	var readers sync.WaitGroup
	readers.Add(builders)
	paths := make([]string, builders)
	for i := range paths {
		all.Go(func() {
			s := program(good)
			s.Files = &readFS{FS: s.Files, read: sync.OnceFunc(readers.Done)}
			var err error
			if paths[i], err = s.BuildIn(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		t.Error(err)
	}
	all.Wait()
	if text, err := os.ReadFile(runs); err != nil || string(text) != "run\n" {
		t.Errorf("the compiler ran as %q says, want once (%v)", text, err)
	}
	slices.Sort(paths)
	if left, err := os.ReadDir(dir); paths[0] == "" || paths[0] != paths[builders-1] || err != nil || len(left) != 1 {
		t.Errorf("%q, and %v is there (%v)", paths, left, err)
	}
}

// readFS tells when its file is read.
type readFS struct {
	fs.FS
	read func()
}

func (r *readFS) Open(name string) (fs.File, error) {
	if name == "main.c" {
		r.read()
	}
	return r.FS.Open(name)
}

// Who asks again reads no sources, unless the file is gone.
func TestEmbedded(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	t.Setenv("CC", "")
	dir, reads := filepath.Join(t.TempDir(), "cache"), 0
	s := program(good)
	s.Files = &readFS{FS: s.Files, read: func() { reads++ }}
	ask := func(when string, readsSources bool) (path string) {
		t.Helper()
		reads = 0
		path, err := s.embeddedIn(t.Context(), dir)
		if err != nil || !isUsable(path) || reads > 0 != readsSources {
			t.Fatalf("%s: %q, after %d reads (%v)", when, path, reads, err)
		}
		return path
	}
	path := ask("first", true)
	ask("again", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ask("when it is gone", true)
	ask("again", false)
	t.Setenv("CC", cc)
	ask("by a compiler that the user names", true)
}

// Two builders at a time make one file, and who comes later takes it.
func TestBuildIn(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	dir := filepath.Join(t.TempDir(), "cache")
	var both sync.WaitGroup
	var paths [2]string
	for i := range paths {
		both.Go(func() {
			var err error
			if paths[i], err = program(good).BuildIn(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if left, err := os.ReadDir(dir); paths[0] == "" || paths[0] != paths[1] || err != nil || len(left) != 1 {
		t.Fatalf("%q, %d files (%v)", paths, len(left), err)
	}
	var exit *exec.ExitError
	if err := exec.Command(paths[0]).Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the program: %v", err)
	}
	if other, err := program(good+"\n").BuildIn(t.Context(), dir); err != nil || other == paths[0] {
		t.Errorf("other sources: %q, %v", other, err)
	}
}

func TestBuildRefuses(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := program(good).BuildIn(t.Context(), open); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("a directory of everybody: %v", err)
	}
	for cc, want := range map[string]error{"exnet-no-such-compiler": ErrCompiler, "false": ErrSource} {
		t.Setenv("CC", cc)
		if _, err := program(good).BuildIn(context.Background(), filepath.Join(t.TempDir(), "cache")); !errors.Is(err, want) {
			t.Errorf("%s: %v", cc, err)
		}
	}
}

package preload

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A C++ program's threads end with all destructors run, by cancellation, pthread_exit and
// exceptions, as they do without the library: from calls on direct connections, too. The library
// has no unwinder of its own. With its own copy of gcc's, a program cannot be cancelled at all.
func TestUnwind(t *testing.T) {
	t.Parallel()
	library, dir := testLibrary(t), t.TempDir()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++")
	}
	env := append(startBroker(t), "LD_PRELOAD="+library)
	for _, kind := range []struct {
		name, from string
		flags      []string
	}{
		{"shared", "0", nil},
		{"static", "6", []string{"-static-libgcc", "-static-libstdc++"}},
	} {
		path := filepath.Join(dir, kind.name)
		args := append([]string{"-O1", "-Wall", "-Wextra", "-Werror", "testdata/unwind.cc", "-o", path}, kind.flags...)
		if out, err := exec.CommandContext(t.Context(), "g++", append(args, "-ldl", "-lpthread")...).CombinedOutput(); err != nil {
			t.Fatalf("g++: %v\n%s", err, out)
		}
		want, status := probe(t, nil, path, kind.from)
		if status != 0 {
			t.Fatalf("%s, without the library: exit status %d\n%s", kind.name, status, want)
		}
		if got, status := probe(t, env, path, kind.from, "direct"); status != 0 || got != want {
			t.Errorf("%s: exit status %d\n%s\nwithout the library:\n%s", kind.name, status, got, want)
		}
	}
}

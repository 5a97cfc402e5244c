package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a package's tests cost is added up, children's time too, and their exit status is passed on.
func TestCost(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "account")
	for _, c := range []struct {
		dir, script string
		status      int
	}{
		{"cheap", "exit 3", 3},
		{"costly", "(i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done); true", 0},
		{"cheap", "kill -QUIT $$; sleep 60", 128 + 3},
	} {
		dir := filepath.Join(root, "some where", c.dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Chdir(dir)
		if status, err := measureCost(file, []string{"sh", "-c", c.script}); status != c.status || err != nil {
			t.Errorf("%s: status %d (%v), want %d", c.script, status, err, c.status)
		}
	}
	t.Chdir(root)
	var out strings.Builder
	if err := printCosts(file, &out); err != nil {
		t.Fatal(err)
	}
	want := `^tests used \d+ s of CPU, most of it:\n +\d+ s  some where/costly\n +0 s  some where/cheap\n$`
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if err := printCosts(file+"-none", &out); err != nil || out.Len() > 0 {
		t.Errorf("nothing counted: %q (%v)", out.String(), err)
	}
}

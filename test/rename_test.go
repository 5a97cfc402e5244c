package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/longtest"
)

// TestRename gives a copy of the tree another module path, and back: every import resolves under
// the new one, with EXNET_NIGHTLY=1 all of it builds, and it is as before under the old one.
func TestRename(t *testing.T) {
	longtest.Skip(t)
	const root = ".."
	dir := t.TempDir()
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	list.Dir = root
	listed, err := list.Output()
	if err != nil {
		t.Skipf("this is no checkout of git: %v", err)
	}
	files := strings.Split(strings.TrimRight(string(listed), "\x00"), "\x00")
	before := make(map[string][]byte)
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		before[name] = text
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := strings.TrimSpace(outputOf(t, dir, "go", "list", "-m"))
	const path = "example.org/some-lab/exn"
	outputOf(t, dir, "tools/rename.sh", path)
	if got := strings.TrimSpace(outputOf(t, dir, "go", "list", "./cmd/exn-tun/exntun")); got != path+"/cmd/exn-tun/exntun" {
		t.Errorf("package %s", got)
	}
	for _, pkg := range strings.Fields(outputOf(t, dir, "go", "list", "-test", "-deps", "-f", "{{if .Error}}{{.ImportPath}}{{end}}", "./...")) {
		t.Errorf("%s does not resolve", pkg)
	}
	if longtest.All() { // some 80 s of CPU, once for each state of the tree
		outputOf(t, dir, "go", "build", "./...")
		outputOf(t, dir, "go", "vet", "./...")
	}
	outputOf(t, dir, "tools/rename.sh", old)
	for name, text := range before {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(now, text) {
			t.Errorf("%s is not as before (%v)", name, err)
		}
	}
	for _, wrong := range []string{old, "", "-x", "a b", "a//b", "/a", "a#b", "a&b", "a\nb"} {
		cmd := exec.Command("tools/rename.sh", wrong)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil || bytes.Count(out, []byte("\n")) != 1 {
			t.Errorf("rename.sh %q: %v, %s", wrong, err, out)
		}
	}
}

// outputOf is what a command in dir writes.
func outputOf(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath") // what is built is found again in Go's cache
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

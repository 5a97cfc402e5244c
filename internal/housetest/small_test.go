package housetest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write "+exnRunPackages+" anew")

// exnRunLimit is how large exn-run may be, in bytes, with its symbols, and without the sources of
// the preload library, which it embeds as they are.
const exnRunLimit = 6_610_000

// exnRunPackages lists the packages that exn-run was linked from when -update was last given.
const exnRunPackages = "testdata/exn-run.packages"

// exn-run stays small. If it does not, the test names the packages that are new in it.
func TestSmall(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the limit is that of amd64")
	}
	list, err := exec.Command("go", "list", "-deps", root+"/cmd/exn-run").Output()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(exnRunPackages, list, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	readSources(t, list)
	program := filepath.Join(t.TempDir(), "exn-run")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", program, root+"/cmd/exn-run").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	size := st.Size() - librarySources(t)
	if size < exnRunLimit {
		return
	}
	t.Errorf("exn-run without the library's sources has %d bytes, more than %d", size, exnRunLimit)
	before, err := os.ReadFile(exnRunPackages)
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(list)) {
		if !slices.Contains(strings.Fields(string(before)), p) {
			t.Errorf("it has a new package: %s", p)
		}
	}
}

// readSources reads the folders of our packages in list, one a line: go test keeps a verdict until
// a folder that the test has read changes, and does not see what go build reads.
func readSources(t *testing.T, list []byte) {
	for p := range strings.FieldsSeq(string(list)) {
		if dir, ours := strings.CutPrefix(p, "exnet/"); ours {
			if _, err := os.ReadDir(filepath.Join(root, dir)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// librarySources returns how many bytes the embedded sources have.
func librarySources(t *testing.T) (n int64) {
	for _, dir := range []string{"segment", "conn", "fd", "hooks", "free", "../../node/rpc/c"} {
		files, err := os.ReadDir(filepath.Join(root, "directsockets/preload", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			n += info.Size()
		}
	}
	return n
}

// Each of these packages would make exn-run larger, by 10 KB to several MB.
func TestSmallImports(t *testing.T) {
	all := packages(t)
	var visit func(path string, seen map[string]bool)
	visit = func(path string, seen map[string]bool) {
		if seen[path] {
			return
		}
		seen[path] = true
		for _, in := range all[path].others {
			if in == "os/user" && path == "fabric/emp" {
				continue // it makes directories for a group, which exn-run does not
			}
			first, _, _ := strings.Cut(in, "/")
			if slices.Contains([]string{"archive", "compress", "crypto", "debug", "gvisor.dev", "html", "log", "text"}, first) ||
				slices.Contains([]string{"github.com/BurntSushi/toml", "net/http", "os/user", "regexp"}, in) {
				t.Errorf("%s imports %s, and exn-run uses it", path, in)
			}
		}
		for in := range all[path].imports {
			visit(in, seen)
		}
	}
	seen := make(map[string]bool)
	if visit("cmd/exn-run", seen); len(seen) < 10 {
		t.Errorf("exn-run uses %d packages", len(seen))
	}
}

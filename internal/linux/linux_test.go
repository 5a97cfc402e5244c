package linux_test

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// needs are packages that are not the same on all systems.
var needs = []string{"golang.org/x/sys/unix", "github.com/vishvananda/netlink"}

// Every package that uses what only Linux has imports this one, itself or by another.
func TestSaidByAll(t *testing.T) {
	const root = "../.."
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case d.Name() == "testdata" || d.Name() == "std" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir // std is copied into Go's own library, tools is a module
		}
		p, err := build.ImportDir(path, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		} else if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		imports["exnet/"+filepath.ToSlash(rel)] = p.Imports
		return err
	})
	if err != nil || len(imports) < 50 {
		t.Fatal(len(imports), "packages,", err)
	}
	var says func(p string, seen map[string]bool) bool
	says = func(p string, seen map[string]bool) bool {
		if seen[p] {
			return false
		}
		seen[p] = true
		return p == "exnet/internal/linux" || slices.ContainsFunc(imports[p], func(i string) bool { return says(i, seen) })
	}
	for p, all := range imports {
		if slices.ContainsFunc(needs, func(n string) bool { return slices.Contains(all, n) }) && !says(p, map[string]bool{}) {
			t.Errorf("%s does not import exnet/internal/linux", p)
		}
	}
}

package foreign

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What gives foreign memory out as something else, and where it may be said. A name
// is that of a method or function, behind whatever package or value.
var mayCall = map[string][]string{
	"Exposed":   {"directsockets/segment/region.go", "directsockets/segment/relay.go", "memory/pool/mover.go", "ports/farmove.go"}, // for the program that asked for it; for the NIC
	"FillFrom":  {"directsockets/copy.go"},                                                                                         // for readers of the kinds that are known
	"Drain":     {"directsockets/copy.go"},                                                                                         // for writers of the kinds that are known
	"MmapPtr":   {"internal/shm/segment_unsafe.go", "internal/shm/gather_unsafe.go", "internal/shm/loan_unsafe.go"},
	"MunmapPtr": {"internal/shm/segment_unsafe.go", "internal/shm/gather_unsafe.go", "internal/shm/loan_unsafe.go"},
	// A map of the kernel's, one that no other process has, one that nobody reads, and one that
	// this process has in common with its own tracer.
	"Mmap": {
		"node/tun/senders_unsafe.go", "cmd/dsbench/internal/coredist/memory.go", "cmd/exn-run/exnrun/ask.go",
		"directsockets/inject/plan_unsafe.go",
	},
}

// Nothing but this package and internal/shm can make a slice of memory that somebody
// else writes: unsafe is in the _unsafe.go files, and each way around the types has its
// place.
func TestNoWayAround(t *testing.T) {
	root := ".."
	const std = "cmd/exn-go/exngo/std" // goes into the standard library, under its rules
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || path == filepath.Join(root, std) || strings.HasPrefix(name, ".") && name != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, fault := range around(t, path, filepath.ToSlash(name)) {
			t.Error(fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Errorf("only %d files were looked at", files)
	}
}

// around returns what a file does that it may not.
func around(t *testing.T, path, name string) (faults []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		if i.Path.Value == `"unsafe"` && !strings.HasSuffix(name, "_unsafe.go") {
			faults = append(faults, name+" imports unsafe; what needs it belongs into a file x_unsafe.go")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		places, restricted := mayCall[sel.Sel.Name]
		for _, p := range places {
			restricted = restricted && p != name
		}
		if restricted {
			faults = append(faults, set.Position(sel.Pos()).String()+": "+sel.Sel.Name+" hands out foreign memory; use a foreign.Memory or a copy")
		}
		return true
	})
	return faults
}

// The test finds what it is for.
func TestWayAroundIsFound(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.go")
	if err := os.WriteFile(path, []byte("package a\nimport \"unsafe\"\nfunc f(x interface{ Exposed() []byte }) []byte { _ = unsafe.Pointer(nil); return x.Exposed() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if faults := around(t, path, "a.go"); len(faults) != 2 {
		t.Errorf("found %q", faults)
	}
	if faults := around(t, path, "directsockets/segment/region.go"); len(faults) != 1 {
		t.Errorf("found %q", faults)
	}
}

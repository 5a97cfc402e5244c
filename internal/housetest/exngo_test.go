package housetest

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// goroot is where Go's own library is.
func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// exn-go builds package godirect, and what that imports, as packages of the standard library: what
// they use of golang.org/x/sys/unix has to be in package syscall, or in exn-go's own package unix.
func TestExnGoHasNames(t *testing.T) {
	const module, shim = "exnet/", "cmd/exn-go/exngo/std/unix"
	root := filepath.Join("..", "..")
	known := make(map[string]bool)
	for _, dir := range []string{filepath.Join(root, shim), filepath.Join(goroot(t), "src", "syscall")} {
		eachSource(t, dir, dir == filepath.Join(root, shim), func(f *ast.File, _ *token.FileSet) {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil {
						known[d.Name.Name] = true
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						switch s := s.(type) {
						case *ast.ValueSpec:
							for _, n := range s.Names {
								known[n.Name] = true
							}
						case *ast.TypeSpec:
							known[s.Name.Name] = true
						}
					}
				}
			}
		})
	}
	if !known["MemfdCreate"] || !known["EPOLLIN"] {
		t.Fatal("the names are not found")
	}
	todo, done := []string{"internal/godirect"}, make(map[string]bool)
	for len(todo) > 0 {
		dir := todo[0]
		todo = todo[1:]
		if done[dir] {
			continue
		}
		done[dir] = true
		eachSource(t, filepath.Join(root, dir), false, func(f *ast.File, fset *token.FileSet) {
			for _, i := range f.Imports {
				if path, err := strconv.Unquote(i.Path.Value); err == nil && strings.HasPrefix(path, module) {
					todo = append(todo, strings.TrimPrefix(path, module))
				}
			}
			at := fset.Position(f.Package).Filename
			if _, err := os.Stat(filepath.Join(root, "cmd/exn-go/exngo/std", filepath.Base(dir), filepath.Base(at))); err == nil {
				return // exn-go has its own in its place
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "unix" && x.Obj == nil && !known[sel.Sel.Name] {
					t.Errorf("%v: exn-go has no unix.%s: add it to %s", fset.Position(sel.Pos()), sel.Sel.Name, shim)
				}
				return true
			})
		})
	}
	if !done["directsockets/segment"] || !done["internal/shm"] {
		t.Errorf("these packages are all: %v", done)
	}
}

// eachSource parses the sources in a folder that Linux on amd64 takes; all: also those with tags.
func eachSource(t *testing.T, dir string, all bool, use func(*ast.File, *token.FileSet)) {
	t.Helper()
	linux := build.Default
	linux.GOOS, linux.GOARCH, linux.CgoEnabled = "linux", "amd64", true
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		if ok, err := linux.MatchFile(dir, e.Name()); err != nil || !ok && !all {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		use(f, fset)
	}
}

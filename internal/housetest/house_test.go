package housetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// pkg is a package without its tests.
type pkg struct {
	path    string // from the root: "fabric/velo"
	docs    []string
	files   []string
	imports map[string]string // of this module: path to the file that imports it
	others  []string          // imports that are not of this module
	exports []string          // package-level names
}

// packages returns all packages of the module.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	all := make(map[string]*pkg)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name() // std holds what exn-go adds to the standard library's own packages
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tools" || name == "std") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir := filepath.Dir(rel)
		p := all[dir]
		if p == nil {
			p = &pkg{path: dir, imports: make(map[string]string)}
			all[dir] = p
		}
		return p.add(rel)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("found only %d packages", len(all))
	}
	return all
}

// add reads a file of the package.
func (p *pkg) add(rel string) error {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, rel), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.files = append(p.files, rel)
	if f.Doc != nil && strings.HasPrefix(f.Doc.Text(), "Package ") || f.Doc != nil && f.Name.Name == "main" {
		p.docs = append(p.docs, f.Doc.Text())
	}
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		if in, ok := strings.CutPrefix(path, "exnet/"); ok {
			p.imports[in] = rel
		} else {
			p.others = append(p.others, path)
		}
	}
	for _, d := range f.Decls {
		p.exports = append(p.exports, exported(d)...)
	}
	return nil
}

// exported returns the exported package-level names that a declaration makes.
func exported(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// sources calls f with each source file in Go and C.
func sources(t *testing.T, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".c", ".h"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		f(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each package has one package comment, which says how it is built and what it does not do.
func TestPackageDocs(t *testing.T) {
	for path, p := range packages(t) {
		if len(p.docs) != 1 {
			t.Errorf("%s has %d package comments, want 1", path, len(p.docs))
		}
	}
}

// most is how many names a package may export without saying why.
const most = 40

// A package that exports many names says why under a heading of its own.
func TestExports(t *testing.T) {
	for path, p := range packages(t) {
		if n := len(p.exports); n > most && !slices.ContainsFunc(p.docs, func(d string) bool { return strings.Contains(d, "# Exports") }) {
			t.Errorf("%s exports %d names, more than %d, and its doc has no section # Exports that says why", path, n, most)
		}
	}
}

// layers are the parts of the house from the bottom up. A package imports only packages of its
// own layer and of lower ones. A name ending in /... stands for all below it, and the longest
// match counts.
var layers = [][]string{
	{"fabric", "foreign", "internal/counter", "internal/shm", "internal/child", "internal/stats", "internal/version", "internal/batchtime", "internal/readhook", "internal/foreigntest", "internal/ctxend", "internal/linux", "internal/logger", "internal/cbuild", "internal/checksum", "internal/rules", "internal/racetest", "internal/longtest", "internal/elffile", "internal/infile", "internal/tempdir", "internal/steps", "internal/steps/...", "internal/display", "node/rpc", "node/rpc/c", "node/rpc/caller"},
	{"fabric/...", "node/rpc/far"},
	{"study", "study/..."},
	{"mtu", "arp", "napi", "multicast"},
	{"exteth", "lnet", "lnet/selftest"},
	{"exn"},
	{"ipstack"},
	{"internal/sched", "internal/netns", "node/hostnet", "node/tun", "node/capture", "internal/worker"},
	{"node/txloop"},
	{"directsockets/segment"},
	{"directsockets/...", "ports/...", "memory/..."},
	{"directsockets"},
	{"internal/...", "node/...", "memory/pager/..."},
	{"node"},
	{"node/control"},
	{"node/agent", "node/daemon"},
	{"cmd/dsbench/internal/...", "cmd/exn-tun/internal/..."},
	{"cmd/dsbench/bench", "cmd/exn-tun/exntun", "cmd/exn-run/exnrun", "cmd/exn-go/exngo", "cmd/exn-cni/exncni", "cmd/exn-mem/exnmem", "cmd/exn-sim/exnsim"},
	{".", "cmd/...", "test/..."},
}

// layerOf returns the number of a package's layer; -1: it has none.
func layerOf(path string) int {
	best, layer := -1, -1
	for i, names := range layers {
		for _, name := range names {
			base, below := strings.CutSuffix(name, "/...")
			match := path == name || below && (path == base || strings.HasPrefix(path, base+"/"))
			if length := len(base)*2 + 1; match && path == name && !below && length+1 > best {
				best, layer = length+1, i
			} else if match && length > best {
				best, layer = length, i
			}
		}
	}
	return layer
}

// Imports lead down.
func TestImportsLeadDown(t *testing.T) {
	for path, p := range packages(t) {
		mine := layerOf(path)
		if mine < 0 {
			t.Errorf("%s is in no layer: enter it in layers", path)
			continue
		}
		for in, file := range p.imports {
			if its := layerOf(in); its > mine {
				t.Errorf("%s imports exnet/%s, which is above it", file, in)
			}
		}
	}
}

func TestLayerOf(t *testing.T) {
	for path, like := range map[string]string{
		"fabric": "foreign", "fabric/velo": "fabric/link/shm", "directsockets/broker": "directsockets/preload",
		"cmd/exn-tun": "test/lab", "cmd/exn-tun/internal/doctor": "cmd/dsbench/internal/paths",
	} {
		if layerOf(path) != layerOf(like) {
			t.Errorf("%s is in layer %d, %s in %d", path, layerOf(path), like, layerOf(like))
		}
	}
	if layerOf("directsockets/segment") >= layerOf("directsockets/broker") || layerOf("directsockets/broker") >= layerOf("directsockets") || layerOf("nowhere") != -1 {
		t.Error("the layers of directsockets, or of nothing")
	}
}

// documents are what users and developers read.
func documents(t *testing.T) []string {
	t.Helper()
	var docs []string
	for _, folder := range []string{"docs", "docs/design", "docs/results"} {
		pages, err := filepath.Glob(filepath.Join(root, folder, "[a-z]*.md"))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %d documents (%v)", folder, len(pages), err)
		}
		docs = append(docs, pages...)
	}
	return append(docs, root+"/README.md", root+"/CONTRIBUTING.md", root+"/directsockets/SPEC.md")
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	quotedPath = regexp.MustCompile("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]*)+)`")
)

// Every link of a document leads to a file that exists.
func TestLinks(t *testing.T) {
	for _, doc := range documents(t) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range linkTarget.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			}
		}
	}
}

// Every file that the architecture names exists; TestWalks checks the order of its walks.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/design/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := quotedPath.FindAllStringSubmatch(string(text), -1)
	if len(paths) < 40 {
		t.Fatalf("only %d files are named", len(paths))
	}
	for _, m := range paths {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("docs/design/architecture.md names %s, which does not exist", m[1])
		}
	}
}

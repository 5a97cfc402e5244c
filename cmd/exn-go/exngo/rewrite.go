package exngo

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// Where direct sockets are in the standard library of a program that is built with them.
const (
	home     = "internal/exnet"
	homeNet  = home + "/net"  // a second package net, which is not patched
	homeUnix = home + "/unix" // in place of golang.org/x/sys/unix
	module   = "exnet"
	xsys     = "golang.org/x/sys/unix"
)

// homeShm is where package shm is. It has assembly, and the assembler runs in the directory
// of its package: one that is there, and has no package of its own.
const homeShm = "internal/syscall"

// homePath is the path in the standard library of a package of this module.
func homePath(path string) string {
	if path == module+"/internal/shm" {
		return homeShm
	}
	return home + "/" + strings.TrimPrefix(strings.TrimPrefix(path, module+"/"), "internal/")
}

// edit replaces src[from:to].
type edit struct {
	from, to int
	text     string
}

// applyEdits returns src with edits made, which do not overlap.
func applyEdits(src []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(src[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(src[at:])
	return out.Bytes()
}

// goFile is a parsed file.
type goFile struct {
	name string
	src  []byte
	set  *token.FileSet
	tree *ast.File
}

func parseGoFile(name string, src []byte) (*goFile, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &goFile{name, src, set, tree}, nil
}

// offsetOf is the offset of a position in the file.
func (f *goFile) offsetOf(p token.Pos) int { return f.set.Position(p).Offset }

// replaceNode is an edit of a node.
func (f *goFile) replaceNode(n ast.Node, text string) edit {
	return edit{f.offsetOf(n.Pos()), f.offsetOf(n.End()), text}
}

// moveHome returns a file of this module as one of the standard library: it imports
// packages from there, and package syscall and shim for what it uses of golang.org/x/sys.
// Lines stay where they are. imports are the packages of this module that it imports.
func moveHome(name string, src []byte, shim map[string]bool) (out []byte, imports []string, err error) {
	f, err := parseGoFile(name, src)
	if err != nil {
		return nil, nil, err
	}
	var edits []edit
	var usesShim, usesSyscall, importsSyscall bool
	ast.Inspect(f.tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Name != "unix" || x.Obj != nil {
			return true
		}
		if shim[sel.Sel.Name] {
			usesShim = true
		} else {
			usesSyscall = true
			edits = append(edits, f.replaceNode(x, "syscall"))
		}
		return true
	})
	for _, spec := range f.tree.Imports {
		if importPath(spec) == "syscall" {
			importsSyscall = true
		}
	}
	for _, spec := range f.tree.Imports {
		path := importPath(spec)
		switch {
		case path == "net":
			edits = append(edits, f.replaceNode(spec.Path, strconv.Quote(homeNet)))
		case strings.HasPrefix(path, module+"/"):
			imports = append(imports, path)
			edits = append(edits, f.replaceNode(spec.Path, strconv.Quote(homePath(path))))
		case path == xsys && spec.Name != nil:
			return nil, nil, fmt.Errorf("%s imports %s by another name", name, xsys)
		case path == xsys:
			var specs []string
			if usesShim {
				specs = append(specs, strconv.Quote(homeUnix))
			}
			if usesSyscall && !importsSyscall {
				specs = append(specs, `"syscall"`)
			}
			edits = append(edits, f.replaceNode(spec, strings.Join(specs, "; ")))
		case strings.Contains(path, "."):
			return nil, nil, fmt.Errorf("%s imports %s, which exn-go does not provide", name, path)
		}
	}
	return applyEdits(src, edits), imports, nil
}

func importPath(spec *ast.ImportSpec) string {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil { // the parser has read it
		panic(err)
	}
	return path
}

// exportedNames lists the constants, types and functions that files of a package declare.
func exportedNames(files map[string][]byte) (map[string]bool, error) {
	names := make(map[string]bool)
	for name, src := range files {
		f, err := parseGoFile(name, src)
		if err != nil {
			return nil, err
		}
		for _, d := range f.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch v := spec.(type) {
					case *ast.ValueSpec:
						for _, id := range v.Names {
							names[id.Name] = true
						}
					case *ast.TypeSpec:
						names[v.Name.Name] = true
					}
				}
			}
		}
	}
	return names, nil
}

// neverTag is a build tag that nobody sets.
const neverTag = "exngo_never"

// withoutCgo returns a file of package net as the second package net has it, which never
// uses cgo. nil: the file is not a part of that.
func withoutCgo(name string, src []byte) ([]byte, error) {
	f, err := parseGoFile(name, src)
	if err != nil {
		return nil, err
	}
	for _, spec := range f.tree.Imports {
		if importPath(spec) == "C" {
			return nil, nil
		}
	}
	edits := f.pullLinknames()
	for _, group := range f.tree.Comments {
		if group.Pos() > f.tree.Package {
			break
		}
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			edits = append(edits, f.replaceNode(c, "//go:build "+noCgo(expr).String()))
		}
	}
	return applyEdits(src, edits), nil
}

// pullLinknames has functions of package net whose bodies are in other packages come from there:
// those without a linkname are pushed to package net only.
func (f *goFile) pullLinknames() (edits []edit) {
	linked := make(map[string]bool)
	for _, group := range f.tree.Comments {
		for _, c := range group.List {
			if words := strings.Fields(c.Text); len(words) > 1 && words[0] == "//go:linkname" {
				linked[words[1]] = true
			}
		}
	}
	for _, d := range f.tree.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body != nil || linked[d.Name.Name] {
			continue
		}
		at := f.offsetOf(d.Pos())
		edits = append(edits, edit{at, at, fmt.Sprintf("//go:linkname %s net.%s\n", d.Name.Name, d.Name.Name)})
	}
	if len(edits) > 0 {
		at := f.offsetOf(f.tree.Name.End())
		edits = append(edits, edit{at, at, "; import _ \"unsafe\""})
	}
	return edits
}

// noCgo is a constraint in which cgo is false.
func noCgo(x constraint.Expr) constraint.Expr {
	switch x := x.(type) {
	case *constraint.AndExpr:
		return &constraint.AndExpr{X: noCgo(x.X), Y: noCgo(x.Y)}
	case *constraint.OrExpr:
		return &constraint.OrExpr{X: noCgo(x.X), Y: noCgo(x.Y)}
	case *constraint.NotExpr:
		return &constraint.NotExpr{X: noCgo(x.X)}
	case *constraint.TagExpr:
		if x.Tag == "cgo" {
			return &constraint.TagExpr{Tag: neverTag}
		}
	}
	return x
}

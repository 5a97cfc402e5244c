package relay

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The steps of a connection's life are those of the table in SPEC.md, 5.9.
func TestLifeSteps(t *testing.T) {
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?s)\n5\.9 .*?\n\n((?:\|[^\n]*\n)+)`).FindSubmatch(spec)
	if text == nil {
		t.Fatal("SPEC.md has no table in 5.9")
	}
	said := make(map[string]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([a-z-]+) \| ([a-z-]+) \| ([a-z -]+) \|$`).FindAllStringSubmatch(string(text[1]), -1) {
		if row[1] != "state" {
			said[strings.Join(row[1:], " | ")] = true
		}
	}
	for s, row := range lifeNext {
		for ev, step := range row {
			if step.to == stateNone {
				continue
			}
			line := fmt.Sprintf("%v | %v | %v | %v", lifeState(s), lifeEvent(ev), step.to, step.act)
			if !said[line] {
				t.Errorf("SPEC.md does not have | %s |", line)
			}
			delete(said, line)
		}
	}
	for line := range said {
		t.Errorf("SPEC.md has | %s |", line)
	}
}

// Nothing but on changes the state of a connection.
func TestLifeOneWriter(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writers := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			f, _ := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						s, ok := left.(*ast.SelectorExpr)
						if !ok || s.Sel.Name != "state" {
							continue
						}
						if x, ok := s.X.(*ast.Ident); ok && x.Name == "c" {
							if writers++; f == nil || f.Name.Name != "on" || name != "life.go" {
								t.Errorf("%s: %s sets the state of a connection", name, f.Name.Name)
							}
						}
					}
				case *ast.CompositeLit:
					if x, ok := n.Type.(*ast.Ident); ok && x.Name == "conn" {
						for _, e := range n.Elts {
							if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "state" {
								t.Errorf("%s: a connection begins in a state", name)
							}
						}
					}
				}
				return true
			})
		}
	}
	if writers != 1 {
		t.Errorf("%d places set the state of a connection", writers)
	}
}

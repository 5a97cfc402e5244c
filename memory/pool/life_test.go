package pool

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

// The steps of a lease's life are those of the table in SPEC.md, 4.1.
func TestLeaseSteps(t *testing.T) {
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(spec), "\n### 4.1 ")
	if !ok {
		t.Fatal("SPEC.md has no 4.1")
	}
	said := make(map[string]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z]+) \| ([a-z]+) \| ([a-z]+) \| ([a-z, -]+) \|$`).FindAllStringSubmatch(text, -1) {
		if row[1] != "state" {
			said[strings.Join(row[1:], " | ")] = true
		}
	}
	for s, row := range leaseNext {
		for ev, step := range row {
			if step.to == leaseNone {
				continue
			}
			act := step.act.String()
			if act == "" {
				act = "-"
			}
			line := fmt.Sprintf("%v | %v | %v | %v", leaseState(s), leaseEvent(ev), step.to, act)
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

// Nothing but on changes the state of a lease.
func TestLeaseOneWriter(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writers := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, _ := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				if x, ok := n.(*ast.KeyValueExpr); ok {
					if key, ok := x.Key.(*ast.Ident); ok && (key.Name == "state" || key.Name == "life") {
						t.Errorf("%s: a lease begins in a state", name)
					}
				}
				a, ok := n.(*ast.AssignStmt)
				if !ok {
					return true
				}
				for _, left := range a.Lhs {
					if x, ok := left.(*ast.SelectorExpr); ok && (x.Sel.Name == "state" || x.Sel.Name == "life") {
						if writers++; f == nil || f.Name.Name != "on" || name != "life.go" {
							t.Errorf("%s sets the state of a lease", name)
						}
					}
				}
				return true
			})
		}
	}
	if writers != 1 {
		t.Errorf("%d places set the state of a lease", writers)
	}
}

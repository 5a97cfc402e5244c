package lease

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
	for s, row := range next {
		for ev, step := range row {
			if step.To == None {
				continue
			}
			act := step.Act.String()
			if act == "" {
				act = "-"
			}
			line := fmt.Sprintf("%v | %v | %v | %v", State(s), Event(ev), step.To, act)
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

// Nothing but On changes the state of a lease, also where packages have one.
func TestLeaseOneWriter(t *testing.T) {
	var files []string
	for _, folder := range []string{".", "..", "../pool"} {
		some, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(some) == 0 {
			t.Fatal(folder, err)
		}
		files = append(files, some...)
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
					if key, ok := x.Key.(*ast.Ident); ok && (key.Name == "state" || key.Name == "Life") {
						t.Errorf("%s: a lease begins in a state", name)
					}
				}
				a, ok := n.(*ast.AssignStmt)
				if !ok {
					return true
				}
				for _, left := range a.Lhs {
					if x, ok := left.(*ast.SelectorExpr); ok && (x.Sel.Name == "state" || x.Sel.Name == "Life") {
						if writers++; f == nil || f.Name.Name != "On" || name != "life.go" {
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

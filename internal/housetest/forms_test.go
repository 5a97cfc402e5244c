package housetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promises are what README says that a user can do, and the test of each that the short form of the
// check runs, after its package.
var promises = map[string]string{
	"make a program faster":                            "test.TestRootRunIperf",
	"find out why something does not work":             "cmd/exn-tun/exntun.TestExplain",
	"connect containers":                               "cmd/exn-cni/exncni.TestTwoContainers",
	"make containers faster on the network they have":  "test.TestRootRunAttach",
	"connect hosts":                                    "test.TestRootHosts",
	"use it in Go":                                     "cmd/exn-go/exngo.TestDirect",
	"program the network card":                         "ports.TestPingPong",
	"use memory of other nodes":                        "test.TestRootHostsMemory",
	"study networks":                                   "cmd/exn-sim/exnsim.TestRun",
	"See it, in some 20 seconds":                       "cmd/exn-tun/exntun.TestRootDemoProgram",
	"Any program runs over `exn0`":                     "test.TestRootIperf",
	"Direct sockets find each other over their `exn0`": "test.TestRootRunNodes",
	"Two programs on this host need no `exn0`":         "test.TestRootRunCurl",
}

// wanted is a row of README's table of what a reader may want.
var wanted = regexp.MustCompile(`(?m)^\| ([^|:]+) \| .*\|$`)

// Every promise of README has a test of its own in the short form.
func TestPromises(t *testing.T) {
	text := strings.Join(strings.Fields(read(t, "README.md")), " ")
	_, table, _ := strings.Cut(read(t, "README.md"), "\n| you want to | read |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := wanted.FindAllStringSubmatch(table, -1)
	if len(rows) < 9 {
		t.Errorf("README's table of what a reader may want has %d rows", len(rows))
	}
	for _, row := range rows {
		if promises[row[1]] == "" {
			t.Errorf("README promises %q: name a test in the short form for it", row[1])
		}
	}
	for promise, name := range promises {
		if !strings.Contains(text, promise) {
			t.Errorf("README does not say %q", promise)
		}
		folder, test, _ := strings.Cut(name, ".")
		switch body := testNamed(t, folder, test); {
		case body == nil:
			t.Errorf("%q: there is no test %s", promise, name)
		case usesPackage(body, "longtest"):
			t.Errorf("%q: %s is not in the short form", promise, name)
		}
	}
}

// testNamed returns a test of a folder; nil: it has none of that name.
func testNamed(t *testing.T, folder, name string) *ast.FuncDecl {
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == name {
				return d
			}
		}
	}
	return nil
}

// usesPackage says whether a node calls a function of a package.
func usesPackage(n ast.Node, name string) (uses bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if ok {
			x, ok := s.X.(*ast.Ident)
			uses = uses || ok && x.Name == name
		}
		return !uses
	})
	return uses
}

// skipsByItself is a test that says in words of its own that the short form leaves it out.
var skipsByItself = regexp.MustCompile(`if [^\n]*\btesting\.Short\(\)[^\n]* \{\n\t+(t|b|tb)\.Skip`)

// Which form of the check runs a test is said in one way, by package longtest.
func TestFormsByOneWord(t *testing.T) {
	if !skipsByItself.MatchString("\tif testing.Short() {\n\t\tt.Skip(\"long\")\n") {
		t.Fatal("the pattern does not find what it is for")
	}
	sources(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") && skipsByItself.MatchString(text) {
			t.Errorf("%s: a test skips by testing.Short: say longtest.Skip(t)", path)
		}
	})
}

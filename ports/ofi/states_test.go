package ofi

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is a step of the life of a connection, as the C code prints it (ctest/states.c).
type step struct{ to, act string }

// table has the steps, by state and event.
type table map[[2]string]step

// steps returns the table of state.c.
func steps(t *testing.T) (lines []string, all table) {
	t.Helper()
	build(t, "plain/states")
	out, err := exec.CommandContext(t.Context(), filepath.Join(buildDir, "plain/states")).Output()
	if err != nil {
		t.Fatal(err)
	}
	all = make(table)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("a step says %q", line)
		}
		lines = append(lines, line)
		all[[2]string{f[0], f[1]}] = step{f[2], f[3]}
	}
	return lines, all
}

// SPEC.md, section 8, has the steps that the code makes.
func TestSteps(t *testing.T) {
	have, _ := steps(t)
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(spec), "\n## 8. ")
	if !ok {
		t.Fatal("SPEC.md has no section 8")
	}
	var want []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z]+) \| ([a-z]+) \| ([a-z]+) \| ([a-z-]+) \|$`).FindAllStringSubmatch(section, -1) {
		if row[1] != "state" {
			want = append(want, strings.Join(row[1:], " "))
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the code has\n%s\nSPEC.md has\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// SPEC.md, section 8, has the stages of an operation, too.
func TestStages(t *testing.T) {
	build(t, "plain/states")
	out, err := exec.CommandContext(t.Context(), filepath.Join(buildDir, "plain/states"), "operation").Output()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(spec), "\n8.1 *An operation.*")
	section, _, ok := strings.Cut(section, "\n## 9. ")
	if !ok {
		t.Fatal("SPEC.md has no section 8.1")
	}
	var want []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z]+) \| ([a-z]+) \| ([a-z]+) \|$`).FindAllStringSubmatch(section, -1) {
		if row[1] != "stage" {
			want = append(want, strings.Join(row[1:], " "))
		}
	}
	have := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the code has\n%s\nSPEC.md has\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// Only state.c writes the state of an endpoint or a request, and the stage of an operation; the
// state of a GET is another one.
func TestStateWriter(t *testing.T) {
	files, err := filepath.Glob("src/*.[ch]")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	writes := regexp.MustCompile(`(\w+)(->|\.)(?:state|stage)\s*([-+|&^]?=[^=]|\+\+|--)|&(\w+)(->|\.)(?:state|stage)\b`)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range writes.FindAllStringSubmatchIndex(string(b), -1) {
			text := string(b[m[0]:m[1]])
			from := strings.LastIndexByte(string(b[:m[0]]), '\n') + 1
			if strings.HasPrefix(text, "g->") || strings.Contains(string(b[from:m[1]]), "_step(&") {
				continue
			}
			t.Errorf("%s writes a state: %s", name, text)
		}
	}
}

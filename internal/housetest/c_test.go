package housetest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Bounds of a function in C: its lines, with both braces, and the blocks within one another in its
// body.
const (
	cLines  = 80
	cLevels = 4
)

// cText is a comment, a string or a character, whose braces do not count.
var cText = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'`)

// cFunction is a function of C: its first line, its length and the depth of its blocks.
type cFunction struct {
	name          string
	lines, levels int
}

// cFunctions returns the functions of a source, which begin and end with a brace in the first
// column.
func cFunctions(source string) (all []cFunction) {
	source = cText.ReplaceAllStringFunc(source, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	var f *cFunction
	head, depth := "", 0
	for line := range strings.Lines(source) {
		switch {
		case f == nil && strings.HasPrefix(line, "{"):
			f, depth = &cFunction{name: head}, 0
		case f == nil:
			if line != "\n" && !strings.HasPrefix(line, "\t") {
				head = strings.TrimSpace(line)
			}
			continue
		}
		f.lines++
		for _, c := range line {
			switch c {
			case '{':
				depth++
				f.levels = max(f.levels, depth-1)
			case '}':
				depth--
			}
		}
		if depth == 0 {
			all, f = append(all, *f), nil
		}
	}
	return all
}

// Functions in C are short and flat.
func TestCFunctions(t *testing.T) {
	found := 0
	sources(t, func(path, text string) {
		if filepath.Ext(path) != ".c" {
			return
		}
		for _, f := range cFunctions(text) {
			found++
			if f.lines > cLines || f.levels > cLevels {
				t.Errorf("%s: %s has %d lines and %d levels; the limits are %d and %d", path, f.name, f.lines, f.levels, cLines, cLevels)
			}
		}
	})
	if found < 500 {
		t.Errorf("only %d functions were found", found)
	}
}

// undocumented returns the lines at which a static function of C begins with no comment above it.
// Other functions have theirs in a header.
func undocumented(source string) (lines []int) {
	all := strings.Split(source, "\n")
	for i, line := range all {
		if line != "{" {
			continue
		}
		head := i - 1
		for head > 0 && strings.HasPrefix(all[head], "\t") {
			head--
		}
		if head < 1 || !strings.HasPrefix(all[head], "static ") {
			continue
		}
		if above := strings.TrimSpace(all[head-1]); !strings.HasSuffix(above, "*/") && !strings.HasPrefix(above, "//") {
			lines = append(lines, head+1)
		}
	}
	return lines
}

// Each function of the preload library says what it takes, returns and which lock it wants.
func TestCComments(t *testing.T) {
	found := 0
	sources(t, func(path, text string) {
		rel, ok := strings.CutPrefix(filepath.ToSlash(path), root+"/directsockets/preload/")
		if folder, _, _ := strings.Cut(rel, "/"); !ok || filepath.Ext(path) != ".c" || !slices.Contains([]string{"segment", "conn", "fd", "hooks"}, folder) {
			return
		}
		found++
		for _, line := range undocumented(text) {
			t.Errorf("%s:%d: a function without a comment", path, line)
		}
	})
	if found < 30 {
		t.Errorf("only %d sources were found", found)
	}
}

func TestCCommentsFinds(t *testing.T) {
	if got := undocumented("/* a */\nstatic int f(int a,\n\t     int b)\n{\n}\n\nstatic int g(void)\n{\n}\n"); len(got) != 1 || got[0] != 7 {
		t.Error(got)
	}
}

func TestCFunctionsFindsBoth(t *testing.T) {
	long := "static int f(int a)\n{\n" + strings.Repeat("\ta++; /* { */\n", 79) + "}\n"
	deep := "int g(void)\n{\n\tif (a) {\n\t\tfor (;;) {\n\t\t\twhile (b) {\n\t\t\t\tdo {\n\t\t\t\t\tif (c) {\n\t\t\t\t\t\td('{');\n\t\t\t\t\t}\n\t\t\t\t} while (1);\n\t\t\t}\n\t\t}\n\t}\n}\n"
	got := cFunctions(long + deep)
	if len(got) != 2 || got[0].lines != 81 || got[0].levels != 0 || got[1].levels != 5 || got[1].name != "int g(void)" {
		t.Errorf("%+v", got)
	}
}

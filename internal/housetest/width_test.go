package housetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// width is how long a line of prose may be.
const width = 100

// Prose fits a terminal: tables, code and what cannot be broken may be longer.
func TestWidth(t *testing.T) {
	for _, doc := range documents(t) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") {
				continue
			}
			if n := len([]rune(line)); n > width && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s:%d has %d characters, more than %d", doc, i+1, n, width)
			}
		}
	}
}

var (
	commentLine = regexp.MustCompile(`^\s*(?://|/\*+|\*) (.*)$`)
	// drawn is a line of a comment that is no prose: indented, in columns, a drawing.
	drawn = regexp.MustCompile(`^\s{2}|^\t|\s{3}|[─│┌└├═▶◀▼▲]`)
)

// wide returns whether a line is prose of a comment and too wide, with tabs of so many columns.
func wide(line string, tab int) bool {
	m := commentLine.FindStringSubmatch(line)
	if m == nil || drawn.MatchString(m[1]) {
		return false
	}
	n := 0
	for _, r := range line {
		if n++; r == '\t' {
			n += tab - 1
		}
	}
	return n > width
}

// Comments fit a terminal, too.
func TestCommentWidth(t *testing.T) {
	tabs := map[string]int{".go": 4, ".c": 8, ".h": 8}
	found := 0
	sources(t, func(path, text string) {
		found++
		for i, line := range strings.Split(text, "\n") {
			if wide(line, tabs[filepath.Ext(path)]) {
				t.Errorf("%s:%d: more than %d characters", path, i+1, width)
			}
		}
	})
	if found < 1000 {
		t.Errorf("only %d sources were found", found)
	}
}

func TestWideFindsProse(t *testing.T) {
	long := strings.Repeat("word ", 20)
	for line, want := range map[string]bool{
		"// " + long: true, "\t/* " + long + "*/": true, " * " + long: true, "// word": false,
		"//\t" + long: false, "// a    b " + long: false, "x = 1 // " + long: false, "// ──▶ " + long: false,
	} {
		if got := wide(line, 8); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

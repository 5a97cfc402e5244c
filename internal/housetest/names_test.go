package housetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Go and C call the states and reasons of direct sockets by the names of SPEC.md,
// section 9, in its order.
func TestNamesAgree(t *testing.T) {
	spec := read(t, "directsockets/SPEC.md")
	_, table, found := strings.Cut(spec, "\n## 9. Names\n")
	if !found {
		t.Fatal("SPEC.md has no section 9")
	}
	arena := enumerators(t, "directsockets/preload/segment/arena.h")
	for _, part := range []struct {
		title  string
		goFile string
		goType string
		c      map[string]int
		rows   int
	}{
		{"9.1", "directsockets/read.go", "rxPhase", arena, 10},
		{"9.2", "directsockets/write.go", "txPhase", arena, 6},
		{"9.3", "", "Why", enumerators(t, "directsockets/preload/conn/stats.h"), 18},
	} {
		_, text, _ := strings.Cut(table, "\n"+part.title+" ")
		text, _, _ = strings.Cut(text, "\n9.")
		rows := regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \| (\w*[a-z][A-Z]\w*) \| (\w+|-) \|`).FindAllStringSubmatch(text, -1)
		if len(rows) < part.rows {
			t.Errorf("%s has %d rows, not %d", part.title, len(rows), part.rows)
		}
		names := constants(t, part.goFile, part.goType)
		said := make(map[int]bool)
		for _, row := range rows {
			said[names[row[2]]] = true
		}
		for name, value := range names {
			if !said[value] {
				t.Errorf("%s has no row for %s", part.title, name)
			}
		}
		for _, row := range rows {
			first, inGo, inC := row[1], row[2], row[3]
			value, ok := names[inGo]
			if !ok {
				t.Errorf("%s: Go has no %s %s", part.title, part.goType, inGo)
			}
			if inC == "-" {
				continue
			}
			code, ok := part.c[inC]
			if !ok {
				t.Errorf("%s: C has no %s", part.title, inC)
			}
			if want := upper(inGo); first != "over" && strings.TrimPrefix(inC, "DS_") != want {
				t.Errorf("%s: C calls %s %s, not %s", part.title, inGo, inC, want)
			}
			if n, err := strconv.Atoi(first); err == nil && (n != value || n != code) {
				t.Errorf("%s: %s is %d in Go, %d in C, %d in SPEC.md", part.title, inGo, value, code, n)
			}
		}
	}
}

// upper returns the name in C of a name in Go: RX_CATCH_UP for rxCatchUp.
func upper(name string) string {
	return strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "${1}_${2}"))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// enumerators returns the names of the enumerations in a header of C, with their values.
func enumerators(t *testing.T, path string) map[string]int {
	t.Helper()
	text := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(read(t, path), "")
	all := make(map[string]int)
	for _, body := range regexp.MustCompile(`(?s)enum \w*\s*\{(.*?)\}`).FindAllStringSubmatch(text, -1) {
		next := 0
		for _, entry := range strings.Split(body[1], ",") {
			name, value, given := strings.Cut(entry, "=")
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			if n, err := strconv.Atoi(strings.TrimSpace(value)); given && err == nil {
				next = n
			}
			all[name] = next
			next++
		}
	}
	return all
}

// constants returns the constants of a type that is counted by iota, with their values.
// Without a file it looks for the type's constants below directsockets.
func constants(t *testing.T, path, typ string) map[string]int {
	t.Helper()
	files := []string{filepath.Join(root, path)}
	if path == "" {
		var err error
		if files, err = filepath.Glob(filepath.Join(root, "directsockets/*/*.go")); err != nil {
			t.Fatal(err)
		}
		deeper, err := filepath.Glob(filepath.Join(root, "directsockets/*/*/*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, deeper...)
	}
	all := make(map[string]int)
	start := regexp.MustCompile(`(?m)^\t(\w+) +` + typ + ` = iota`)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := start.FindIndex(b)
		if at == nil {
			continue
		}
		body, _, _ := strings.Cut(string(b[at[0]:]), "\n)")
		for i, line := range regexp.MustCompile(`(?m)^\t(\w+)( +=)?`).FindAllStringSubmatch(body, -1) {
			if line[2] == "" { // another name of one of them has a value
				all[line[1]] = i
			}
		}
	}
	return all
}

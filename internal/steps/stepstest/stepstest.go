// Package stepstest compares tables of states with SPEC.md, and finds code that writes a state
// beside its owner.
//
// # Architecture
//
//	Rows     the rows of a table in a document
//	Compare  a table against them
//	Owner    that one file alone writes a field
//
// # Concurrency
//
// Functions may be called from many goroutines.
package stepstest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var row = regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([a-z-]+) \| ([a-z-]+) \|([^|\n]*)\|?`)

// Rows returns the rows of the first table of a section of a document, whose title begins with
// title: state, event and next state. keep decides by a row and by its fourth column; nil keeps
// all.
func Rows(t *testing.T, document, title string, keep func(row, fourth string) bool) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)\n` + regexp.QuoteMeta(title) + ` .*?\n\n((?:\|[^\n]*\n)+)`).FindSubmatch(text)
	if table == nil {
		t.Fatalf("%s has no table %s", document, title)
	}
	var rows []string
	for _, m := range row.FindAllSubmatch(table[1], -1) {
		r := string(m[1]) + " " + string(m[2]) + " " + string(m[3])
		if string(m[1]) != "state" && (keep == nil || keep(r, strings.TrimSpace(string(m[4])))) {
			rows = append(rows, r)
		}
	}
	slices.Sort(rows)
	return rows
}

// Compare holds the rows that the code has against those of the document.
func Compare(t *testing.T, title string, have, want []string) {
	t.Helper()
	for _, r := range have {
		if !slices.Contains(want, r) {
			t.Errorf("%s: the code alone has: %s", title, r)
		}
	}
	for _, r := range want {
		if !slices.Contains(have, r) {
			t.Errorf("%s: the document alone has: %s", title, r)
		}
	}
	if len(have) != len(want) || len(want) == 0 {
		t.Errorf("%s: the code has %d steps, the document %d", title, len(have), len(want))
	}
}

// Owner has no file of a folder but owner write what the expression write finds. Files that match
// the pattern of the second argument are looked at, tests are not.
func Owner(t *testing.T, files, owner, write string) {
	t.Helper()
	names, err := filepath.Glob(files)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", files, err)
	}
	found, writes := false, regexp.MustCompile(write)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		at := writes.FindIndex(text)
		switch {
		case filepath.Base(name) == owner:
			found = at != nil
		case at != nil:
			t.Errorf("%s writes a state: %s", name, text[at[0]:at[1]])
		}
	}
	if !found {
		t.Errorf("%s does not write what %s finds", owner, write)
	}
}

// Package clitest checks what a command prints, for tests.
package clitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// Golden compares got with a file in testdata, which it writes anew first if
// update is set.
func Golden(tb testing.TB, update bool, name, got string) {
	tb.Helper()
	path := filepath.Join("testdata", name)
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		tb.Errorf("%s (-want +got; go test -update writes it anew):\n%s", path, diff)
	}
}

// Fits fails the test if a line of text is wider than a table may be.
func Fits(tb testing.TB, width int, text string) {
	tb.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
			tb.Errorf("a line has %d columns, more than %d: %q", n, width, line)
		}
	}
}

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

// ShareCoverage lets programs of other users that the test starts write their part of
// -cover: else each says that it cannot.
func ShareCoverage(tb testing.TB) {
	tb.Helper()
	if testing.CoverMode() == "" {
		return
	}
	dir, err := os.MkdirTemp("", "cover")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		tb.Fatal(err)
	}
	tb.Setenv("GOCOVERDIR", dir)
}

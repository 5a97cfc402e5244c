// Package clitest checks what a command prints, for tests.
package clitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"exnet/internal/command"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
		tb.Errorf("%s (-want +got; go test -update rewrites it):\n%s", path, diff)
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

// Tree checks the help of all commands of a tree: each says what it is, fits the width, has
// flags that say what they do, and examples that name the program.
func Tree(tb testing.TB, root *cobra.Command, width int) {
	tb.Helper()
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		seen++
		path := c.CommandPath()
		if c.Short == "" || c.Long == "" || strings.HasSuffix(c.Short, ".") {
			tb.Errorf("%s has no Short or Long, or its Short ends with a full stop", path)
		}
		help := command.Help(c)
		Fits(tb, width, help)
		if !strings.Contains(help, "Usage: "+path) || strings.Contains(help, "%!") || strings.Contains(help, "`") {
			tb.Errorf("the help of %s is\n%s", path, help)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				tb.Errorf("%s --%s does not say what it does", path, f.Name)
			}
		})
		for line := range strings.Lines(c.Example) {
			if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "    ") && !strings.Contains(line, root.Name()) && !strings.HasPrefix(line, "exn-") {
				tb.Errorf("%s has the example %q, which does not name the program", path, line)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if seen < 3 {
		tb.Errorf("%d commands", seen)
	}
}

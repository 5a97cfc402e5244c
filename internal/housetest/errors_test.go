package housetest

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"exnet/internal/cli"
)

// errorPrefix is what an error of a package begins with.
var errorPrefix = regexp.MustCompile(`(?:errors\.New|fmt\.Errorf)\("([a-z]+): `)

// Users do not see the names of packages that errors begin with.
func TestErrorsWithoutPackages(t *testing.T) {
	found := 0
	for dir, p := range packages(t) {
		for _, file := range p.files {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range errorPrefix.FindAllStringSubmatch(string(text), -1) {
				if m[1] != filepath.Base(dir) {
					continue
				}
				found++
				if cli.Text(errors.New(m[1]+": x")) != "x" {
					t.Errorf("%s: an error begins with the package's name: enter %q in internalNames of internal/cli/errors.go", file, m[1])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d errors found", found)
	}
}

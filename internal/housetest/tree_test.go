package housetest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folders returns all folders of this project down to a depth of two, but for the test data: those
// that have a file below them.
func folders(t *testing.T) map[string]bool {
	t.Helper()
	seen := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		parts := strings.Split(filepath.ToSlash(rel), "/")
		switch name := d.Name(); {
		case !d.IsDir():
			for n := 1; n <= min(len(parts)-1, 2); n++ {
				seen[strings.Join(parts[:n], "/")] = true
			}
		case path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "corpus", "build", "bin", "dist"}, name)):
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// listed returns the folders that the list in architecture.md names: a,b and a/{b,c}.
func listed(t *testing.T, doc string) map[string]bool {
	t.Helper()
	_, text, found := strings.Cut(doc, "## Folders\n\n```text\n")
	if !found {
		t.Fatal("architecture.md has no list of folders")
	}
	text, _, _ = strings.Cut(text, "```")
	names := make(map[string]bool)
	for line := range strings.Lines(text) {
		what, _, _ := strings.Cut(strings.TrimSpace(line), "   ")
		if dir, rest, group := strings.Cut(what, "/{"); group {
			for name := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
				names[dir+"/"+name] = true
			}
			continue
		}
		for name := range strings.SplitSeq(what, ", ") {
			if name != "" {
				names[name] = true
			}
		}
	}
	return names
}

// docs/design/architecture.md lists the folders that there are, and no others: each, or the one
// that it is in.
func TestFolders(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/design/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	there, named := folders(t), listed(t, string(text))
	grouped := make(map[string]bool) // folders of which single ones are listed
	for name := range named {
		if !there[name] {
			t.Errorf("architecture.md lists %s, which is not there", name)
		}
		if dir, _, below := strings.Cut(name, "/"); below {
			grouped[dir] = true
		}
	}
	for name := range there {
		dir, _, below := strings.Cut(name, "/")
		if !named[name] && !grouped[name] && (!below || grouped[dir]) {
			t.Errorf("architecture.md does not list %s", name)
		}
	}
}

// What a checkout has beside its folders is what a newcomer looks for, and nothing else.
func TestRootFiles(t *testing.T) {
	want := []string{".clang-format", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "check.sh", "go.mod", "go.sum",
		"release.sh", "sources.go"}
	cmd := exec.Command("git", "ls-files", ":(glob)*")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skip("needs git and a clone:", err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("the root folder has %q, not %q", got, want)
	}
}

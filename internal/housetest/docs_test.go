package housetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docsLimit is how many words the pages in docs may have, as wc counts them. A page that grows
// takes its words from what no reader needs.
const docsLimit = 40_000

// The documentation stays short enough to be read.
func TestDocsStayShort(t *testing.T) {
	words := make(map[string]int)
	sum := 0
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		words[path] = len(strings.Fields(string(text)))
		sum += words[path]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum < docsLimit/2 {
		t.Fatalf("only %d words were found", sum)
	}
	if sum > docsLimit {
		t.Errorf("the pages in docs have %d words, more than %d: cut %d", sum, docsLimit, sum-docsLimit)
		for path, n := range words {
			if n > docsLimit/20 {
				t.Logf("%6d %s", n, path)
			}
		}
	}
}

package housetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hop is a function of a walk, and the file that has it.
type hop struct{ file, function string }

var (
	walkHeading = regexp.MustCompile(`(?m)^## Walk \d+: (.*)$`)
	walkName    = regexp.MustCompile("`([^`]+)`")
)

// walks returns the functions of each walk of the architecture, by its heading. A function belongs
// to the file before it.
func walks(text string) map[string][]hop {
	all := make(map[string][]hop)
	for _, at := range walkHeading.FindAllStringSubmatchIndex(text, -1) {
		heading, rest := text[at[2]:at[3]], text[at[1]:]
		if end := strings.Index(rest, "\n## "); end >= 0 {
			rest = rest[:end]
		}
		file := ""
		for _, m := range walkName.FindAllStringSubmatch(rest, -1) {
			switch ext := filepath.Ext(m[1]); {
			case ext == ".go" || ext == ".c":
				file = m[1]
			case file != "" && !strings.ContainsAny(m[1], "/. "):
				all[heading] = append(all[heading], hop{file, m[1]})
			}
		}
	}
	return all
}

// mentions returns the lines of code that name a function: those that define it, and the others.
func mentions(source []byte, c bool, function string) (defined, used bool) {
	name := regexp.MustCompile(`\b` + function + `\b`)
	for line := range strings.Lines(string(source)) {
		trimmed := strings.TrimSpace(line)
		if !name.MatchString(line) || strings.HasPrefix(trimmed, "//") || strings.HasPrefix(trimmed, "*") || strings.HasPrefix(trimmed, "/*") {
			continue
		}
		head := strings.HasPrefix(line, "func ")
		if c {
			head = !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "#")
		}
		defined, used = defined || head, used || !head
	}
	return defined, used
}

// checkWalk says what is wrong with a walk: each function is in its file, and is used in a folder
// that the walk has reached. Programs call the first one, and those that the heading names.
func checkWalk(heading string, walk []hop) (wrong []string) {
	var folders []string
	for i, h := range walk {
		text, err := os.ReadFile(filepath.Join(root, h.file))
		if defined, _ := mentions(text, filepath.Ext(h.file) == ".c", h.function); err != nil || !defined {
			wrong = append(wrong, fmt.Sprintf("%s does not have %s (%v)", h.file, h.function, err))
			continue
		}
		if dir := filepath.Dir(h.file); !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
		if i > 0 && !strings.Contains(heading, h.function) && !usedIn(folders, h.function) {
			wrong = append(wrong, fmt.Sprintf("nothing in %s uses %s of %s", strings.Join(folders, ", "), h.function, h.file))
		}
	}
	return wrong
}

// usedIn reports whether code of a folder uses a function.
func usedIn(folders []string, function string) bool {
	for _, dir := range folders {
		for _, ext := range []string{".go", ".c", ".h"} {
			files, _ := filepath.Glob(filepath.Join(root, dir, "*"+ext)) // the pattern is good
			for _, f := range files {
				if strings.HasSuffix(f, "_test.go") {
					continue
				}
				if text, err := os.ReadFile(f); err == nil {
					if _, used := mentions(text, ext != ".go", function); used {
						return true
					}
				}
			}
		}
	}
	return false
}

// Who follows a walk of the architecture gets from each function to the next.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/design/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	all := walks(string(text))
	if len(all) != 3 {
		t.Errorf("%d walks", len(all))
	}
	for heading, walk := range all {
		if len(walk) < 8 {
			t.Errorf("%s: only %d functions", heading, len(walk))
		}
		for _, w := range checkWalk(heading, walk) {
			t.Errorf("%s: %s", heading, w)
		}
	}
}

// A step out of its order, or one that is not there, is found.
func TestWalksFindsGaps(t *testing.T) {
	walk := []hop{{"exteth/send.go", "Post"}, {"fabric/velo/send.go", "Send"}, {"ipstack/transmit.go", "FromHost"}, {"exteth/send.go", "Nowhere"}}
	if got := checkWalk("", walk); len(got) != 2 || !strings.Contains(got[0], "uses FromHost") || !strings.Contains(got[1], "does not have Nowhere") {
		t.Errorf("%q", got)
	}
}

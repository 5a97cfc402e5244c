package exntun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file of rules that is wrong is refused, with the line.
func TestReadRulesRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	for text, want := range map[string]string{
		"on\nperhaps":               `:2: "perhaps": a rule begins with on or off`,
		"\n\noff --port 0":          ":3: ",
		"off --share 10":            "unknown flag: --share", // of all others it says nothing
		"on --share 101%":           "use a number from 1 to 100",
		"off 80":                    `"80" is no flag`,
		"off --container other":     `it is about container "other"`,
		"off --to example.org":      "is no address",
		"off --output file":         "unknown flag: --output",
		"on --port 80 --port=70000": "use a number from",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if rules, err := readRules(file, "web"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, rules, err, want)
		}
	}
}

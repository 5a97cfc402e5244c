package directsockets

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestSteps holds the steps of both directions against the tables of SPEC.md, 9.4 and 9.5.
func TestSteps(t *testing.T) {
	spec, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	var rx, tx []string
	for step, next := range rxNext {
		to := "before"
		if next != rxBefore {
			to = next.String()
		}
		rx = append(rx, fmt.Sprint(step.from, " ", step.what, " ", to))
	}
	for step, next := range txNext {
		tx = append(tx, fmt.Sprint(step.from, " ", step.what, " ", next))
	}
	for title, have := range map[string][]string{"9.4": rx, "9.5": tx} {
		text := regexp.MustCompile(`(?s)\n` + regexp.QuoteMeta(title) + ` .*?\n\n((?:\|[^\n]*\n)+)`).FindSubmatch(spec)
		if text == nil {
			t.Fatalf("SPEC.md has no table %s", title)
		}
		var want []string
		for _, row := range regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([a-z][a-z-]*) \| ([a-z-]+) \|`).FindAllSubmatch(text[1], -1) {
			if string(row[1]) != "state" {
				want = append(want, fmt.Sprintf("%s %s %s", row[1], row[2], row[3]))
			}
		}
		slices.Sort(have)
		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(have, want) {
			t.Errorf("%s: the code has\n%q\nSPEC.md\n%q", title, have, want)
		}
	}
}

package directsockets

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"exnet/directsockets/broker/connstats"
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

// TestFailed has offers fail more often than they are repeated: what a broker is to blame for,
// this one or the peer's, does not count.
func TestFailed(t *testing.T) {
	for why, counts := range map[Reason]bool{
		ReasonNoBroker: false, ReasonVersion: false, ReasonSilent: false, ReasonUnreachable: false,
		ReasonExpired: true, ReasonRefused: true, ReasonNoMemory: true,
	} {
		c := &Conn{entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
		for range maxTries + 1 {
			c.failed(why)
		}
		if never := c.up.Load() == upNever; never != counts {
			t.Errorf("%v, %d times: given up %v", why, maxTries+1, never)
		}
	}
}

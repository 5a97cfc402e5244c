package ports

import (
	"fmt"
	"testing"

	"exnet/internal/steps/stepstest"
)

// SPEC.md has the steps of a pair, and only on takes them.
func TestPairSteps(t *testing.T) {
	var have []string
	for from := range pairStates {
		for ev := range pairEvents {
			if to := pairNext[from][ev]; to != pairAsking {
				have = append(have, fmt.Sprint(from, " ", ev, " ", to))
			}
		}
	}
	stepstest.Compare(t, "9.1", have, stepstest.Rows(t, "SPEC.md", "9.1", nil))
	stepstest.Owner(t, "*.go", "pair.go", `\b(f|p|pair)\.state\s*(=[^=]|,[^)\n]*=[^=])`)
}

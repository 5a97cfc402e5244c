package directsockets

import (
	"strings"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/steps/stepstest"
)

// TestSteps holds the steps of both directions and of the life against the tables of SPEC.md. The C
// library's tests do the same (preload/ctest/leave_test.c, life_test.c).
func TestSteps(t *testing.T) {
	stepstest.Compare(t, "9.4", rxSteps.Rows(), stepstest.Rows(t, "SPEC.md", "9.4", notOfC))
	stepstest.Compare(t, "9.5", txSteps.Rows(), stepstest.Rows(t, "SPEC.md", "9.5", notOfC))
	var life []string
	for _, row := range stepstest.Rows(t, "SPEC.md", "9.6", func(_, of string) bool { return of != "C" }) {
		if rest, any := strings.CutPrefix(row, "any "); any {
			for s := lifeEnded; s <= lifePlain; s++ {
				life = append(life, s.String()+" "+rest)
			}
			continue
		}
		life = append(life, row)
	}
	stepstest.Compare(t, "9.6", lifeSteps.Rows(), life)
}

// notOfC excludes the steps that the C library alone has.
func notOfC(row, _ string) bool {
	return !strings.Contains(row, " failed ") && !strings.Contains(row, " killed ")
}

// TestOwners has nothing but its owner write a state.
func TestOwners(t *testing.T) {
	stepstest.Owner(t, "*.go", "states.go", `\.phase\s*(=[^=]|,[^)\n]*=[^=])`)
	stepstest.Owner(t, "*.go", "life.go", `\.life\.(Store|Swap|CompareAndSwap)\(`)
}

// TestFailed has offers fail more often than they are repeated: what a broker is to blame for,
// this one or the peer's, does not count.
func TestFailed(t *testing.T) {
	for why, counts := range map[Reason]bool{
		ReasonNoBroker: false, ReasonVersion: false, ReasonSilent: false, ReasonUnreachable: false,
		ReasonExpired: true, ReasonRefused: true, ReasonNoMemory: true,
	} {
		c := &Conn{entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
		c.onLife(lifeBegin)
		for range maxTries + 1 {
			c.onLife(lifeMake)
			c.scheduleRetry(why)
		}
		if never := c.lifeIs() == lifePlain; never != counts {
			t.Errorf("%v, %d times: given up %v", why, maxTries+1, never)
		}
	}
}

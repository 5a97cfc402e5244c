package preload

import (
	"testing"

	"exnet/internal/steps/stepstest"
)

// TestOwners has one file alone write each state.
func TestOwners(t *testing.T) {
	stepstest.Owner(t, "conn/*.[ch]", "state.c", `(_store_n|_exchange\w*)\(&[\w>-]*\b[rt]x_mode\b|\b[rt]x_(mode|before) = `)
	stepstest.Owner(t, "conn/*.[ch]", "dgstate.c", `(DS_SET\(|_store_n\(&)[\w>-]*(o|f|in|out)->state\b|\b(o|f|in|out)->state = `)
	stepstest.Owner(t, "conn/*.[ch]", "dgstate.c", `DS_SET\(d->setup\b|\bd->setup = `)
	stepstest.Owner(t, "conn/*.[ch]", "lifestate.c", `(DS_SET\(|_store_n\(&|_exchange\w*\(&?)(s->state|l->state|\w+->life\.state|state)\b|\b(s|l|life)(->|\.)state = `)
}

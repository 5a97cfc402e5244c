package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"exnet/internal/display"
)

// how says with which settings the rows of a part were measured, from the rows: ""
// if there are none.
func (p Part) how() string {
	if len(p.Rows) == 0 {
		return ""
	}
	var congestion, runs, times, cores []string
	add := func(list *[]string, text string) {
		if text != "" && !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, r := range p.Rows {
		if r.Congestion != "" && r.MTU != 0 { // the NIC by itself has neither
			add(&congestion, "TCP "+r.Congestion)
		}
		add(&runs, display.Count(r.Runs, "run"))
		span := spanText(r.Duration)
		if r.Rest > 0 {
			span += ", " + spanText(r.Rest) + " of rest before each message"
		}
		add(&times, span)
		add(&cores, r.Cores)
	}
	parts := []string{strings.Join(runs, " or ") + " of " + strings.Join(times, " or ")}
	if len(congestion) > 0 {
		parts = append(parts, strings.Join(congestion, ", "))
	}
	if len(cores) > 0 {
		parts = append(parts, "cores "+strings.Join(cores, " and "))
	}
	return fmt.Sprintf("%s: %s", p.ID, strings.Join(parts, ", "))
}

// spanText writes seconds for people: "200ms", "1s".
func spanText(s float64) string { return display.Duration(time.Duration(s * float64(time.Second))) }

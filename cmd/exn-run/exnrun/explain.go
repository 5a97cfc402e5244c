package exnrun

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/internal/display"
)

// formatCounters are the other counters, without those that are zero.
func formatCounters(c *connstats.Connection) string {
	sent, received := "tx DEMOTE", "rx DEMOTE"
	if c.UDP {
		sent, received = "datagrams dropped", "datagrams dropped"
	}
	var parts []string
	for _, count := range []struct {
		name string
		n    uint64
	}{
		{"tx VELO", c.Sent.VELO}, {"tx VELO_LAST", c.Sent.VELOLast}, {"tx RMA_INFO", c.Sent.RMAInfo},
		{"tx RMA_AVAIL", c.Sent.RMAAvail}, {"tx SHUTDOWN", c.Sent.Shutdown}, {sent, c.Sent.Demote},
		{"rx VELO", c.Received.VELO}, {"rx VELO_LAST", c.Received.VELOLast}, {"rx RMA_INFO", c.Received.RMAInfo},
		{"rx RMA_AVAIL", c.Received.RMAAvail}, {"rx SHUTDOWN", c.Received.Shutdown}, {received, c.Received.Demote},
		{"ring", c.RingSize}, {"sleeps", c.Sleeps}, {"wake-ups sent", c.WakeUps},
		{"spins that found something", c.SpinHits}, {"found nothing", c.SpinFails},
	} {
		if count.n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", count.name, count.n))
		}
	}
	return strings.Join(parts, ", ")
}

// summaryLine is the last line of what --explain prints.
func summaryLine(all []*connstats.Connection, lost, processes int) string {
	if processes == 0 {
		return "no TCP connections seen: the program made none that was accepted, or is setuid, sets LD_PRELOAD itself, or is Go's and has the module exnet in it"
	}
	direct, udp, reasons := 0, 0, make(map[connstats.Why]int)
	for _, c := range all {
		switch {
		case explain.WasDirect(c):
			direct++
			continue
		case c.UDP:
			udp++
		}
		reasons[c.Why]++
	}
	text := fmt.Sprintf("%s in %s: %d direct, %d tcp", display.Count(len(all), "connection"), display.Count(processes, "process"), direct, len(all)-direct-udp)
	if udp > 0 {
		text += fmt.Sprintf(", %d udp", udp)
	}
	var parts []string
	for w := connstats.WhyNotYet; w <= connstats.WhyLast; w++ {
		if n := reasons[w]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", n, explain.Why(w)))
		}
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	if lost > 0 {
		text += fmt.Sprintf("; %d more that were too short or too many to be seen", lost)
	}
	return text
}

// Record is a line of the file of --output.
type Record struct {
	// Path is direct if bytes went over the segment, else tcp or udp.
	Path   string `json:"path"`
	Choice string `json:"choice"` // as --explain says it
	Why    int    `json:"why"`    // reason of SPEC.md, 6.3
	connstats.Connection
}

// writeReport writes a Record a line.
func writeReport(w io.Writer, all []*connstats.Connection) error {
	lines := json.NewEncoder(w)
	for _, c := range all {
		r := Record{Path: explain.Kernel(c), Choice: explain.Choice(c), Why: int(c.Why), Connection: *c}
		if explain.WasDirect(c) {
			r.Path = "direct"
		}
		if err := lines.Encode(r); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	return nil
}

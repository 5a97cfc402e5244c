package programs

import (
	"fmt"
	"io"
	"strings"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
)

// MTUs of the networks.
const (
	loopbackMTU = 65536
	bridgeMTU   = 1500
)

// table writes a table for people, a measure at a time.
type table struct {
	w      io.Writer
	bridge bool // with latencies and CPU times in place of the range
}

func (t table) head(o Options, m result.Machine, d coredist.Distance) error {
	var b strings.Builder
	what := "Programs over loopback, with exn-run (direct) and without (tcp, udp)"
	if t.bridge {
		what = "Programs in namespaces on a bridge, with exn-tun agent (direct) and without (tcp)"
	}
	result.Wrap(&b, fmt.Sprintf("%s, %s of %v each, interleaved; %v.", what, display.Count(o.runs, "run"), o.duration, d))
	result.Wrap(&b, m.String()+".")
	if t.bridge {
		fmt.Fprintf(&b, "\n%-16s %-7s %10s %-7s %7s %6s %9s %9s %9s\n", "measure", "path", "median", "", "spread", "ratio", "p50 us", "p99 us", "CPU us")
		_, err := io.WriteString(t.w, b.String())
		return err
	}
	fmt.Fprintf(&b, "\n%-22s %-7s %10s %-7s %10s %10s %7s %6s %9s\n", "measure", "path", "median", "", "min", "max", "spread", "ratio", "p99 us")
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t table) rows(rows []result.Row) error {
	var b strings.Builder
	for _, r := range rows {
		noisy := " "
		if r.Noisy {
			noisy = "!"
		}
		if t.bridge {
			fmt.Fprintf(&b, "%-16s %-7s %10s %-7s %6s%s %6s %9s %9s %9s\n", r.Measure, r.Path, display.Figure(r.Median), r.Unit, display.Percent(r.Spread), noisy,
				result.Optional(r.Ratio), result.Optional(r.P50), result.Optional(r.P99), result.Optional(r.CPUPerRequest))
			continue
		}
		fmt.Fprintf(&b, "%-22s %-7s %10s %-7s %10s %10s %6s%s %6s %9s\n", r.Measure, r.Path, display.Figure(r.Median), r.Unit,
			display.Figure(r.Min), display.Figure(r.Max), display.Percent(r.Spread), noisy, result.Optional(r.Ratio), result.Optional(r.P99))
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

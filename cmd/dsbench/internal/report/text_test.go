package report

import (
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/stats"
)

// rowOf makes a row of the runs' values.
func rowOf(path string, size int, values ...float64) result.Row {
	s := stats.Summarize(values)
	return result.Row{Path: path, Size: size, Median: s.Median, Min: s.Min, Max: s.Max, Values: values, Spread: s.Spread(), Noisy: s.Spread() > result.NoiseBound}
}

// dataOf is a report with these rows.
func dataOf(parts map[string][]result.Row) *Data {
	d := &Data{}
	for id, rows := range parts {
		d.Parts = append(d.Parts, Part{ID: id, Rows: rows})
	}
	return d
}

// The ratios of the summary have one direction, which is README's: above 1 is better.
func TestSummary(t *testing.T) {
	cpu, p99 := []float64{4, 1}, []float64{90, 30}
	rows := func(unit string, lo, ds float64) []result.Row {
		list := []result.Row{rowOf("lo", 64, lo, lo), rowOf("ds", 64, ds, ds), rowOf("lo", 64<<10, lo, lo), rowOf("ds", 64<<10, ds, ds)}
		for i := range list {
			list[i].Unit, list[i].CPUPerGB, list[i].P99 = unit, &cpu[i%2], &p99[i%2]
		}
		return list
	}
	d := dataOf(map[string][]result.Row{PartStream1: rows(gbits, 10, 20), PartLatency: rows("us", 30, 10), PartRate: rows("million/s", 1, 0.5), PartCRR: rows("/s", 10, 10)})
	titles, summary := d.summary()
	want := []string{"2.0", "3.0", "3.0", "0.50", "1.0", "4.0"}
	for i, c := range summary[1].Cells {
		if c.Ratio != want[i] || summary[0].Cells[i].Ratio != "" {
			t.Errorf("%s: %q, want %q; lo has %q", titles[i], c.Ratio, want[i], summary[0].Cells[i].Ratio)
		}
	}
	if len(summary[1].Cells) != len(want) {
		t.Errorf("%d columns", len(summary[1].Cells))
	}
}

// A card says how many times as fast as its control a path is, and whether that is clear.
func TestTimes(t *testing.T) {
	lo := rowOf("lo", 64, 9, 10, 11)
	for _, tt := range []struct {
		r    result.Row
		want string
	}{
		{rowOf("ds", 64, 29, 30, 31), "3.0 times as fast as lo"},
		{rowOf("ds", 64, 10, 11, 12), "1.1 times as fast as lo, the runs overlap"},
		{rowOf("ds", 64, 11), "1.1 times as fast as lo"}, // one run says nothing of noise
	} {
		if got := times(&tt.r, &lo); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.r.Values, got, tt.want)
		}
	}
}

// How many times as fast a program is has the extremes of its runs.
func TestProgramPairs(t *testing.T) {
	d := dataOf(map[string][]result.Row{PartPrograms: {{Measure: "iperf3", Path: "tcp", Unit: gbits, Median: 2, Min: 1, Max: 4},
		{Measure: "iperf3", Path: "direct", Unit: gbits, Median: 8, Min: 8, Max: 8}}})
	if p := d.programPairs()[0]; p.times != 4 || p.low != 2 || p.high != 8 {
		t.Errorf("%+v", p)
	}
}

// In print the table of data is not cut: what holds there stands behind what it overrides.
func TestPrintRulesAreLast(t *testing.T) {
	screen, wide := strings.Index(reportTemplate, ".wide{overflow-x:auto"), strings.LastIndex(reportTemplate, ".wide{overflow:visible}")
	if printed := strings.LastIndex(reportTemplate, "@media print{"); screen < 0 || wide < printed || printed < screen {
		t.Errorf("rules of the screen at %d, of print at %d with .wide at %d", screen, printed, wide)
	}
}

// The interrupts of figure 5.29 are those that the NICs counted; paths that count none are left
// out.
func TestInterrupts(t *testing.T) {
	counted := func(path string, size int, n float64) result.Row {
		r := rowOf(path, size, 1, 1, 1)
		r.InterruptsPerGB = &n
		return r
	}
	d := dataOf(map[string][]result.Row{PartCPU: {
		rowOf("veth", 64, 1, 1, 1),
		counted("exn:interrupt", 64, 4e6), counted("exn:napi", 64, 1e6), counted("exn:adaptive", 64, 4e5),
		counted("exn:interrupt", 4096, 5e5), counted("exn:napi", 4096, 6e5), counted("exn:adaptive", 4096, 25e4),
	}})
	find := func(d *Data) reportFigure {
		for _, f := range d.drawn() {
			if f.ID == "fig-5-29" {
				return f
			}
		}
		t.Fatal("no figure 5.29")
		return reportFigure{}
	}
	f := find(d)
	if len(f.Charts) != 2 || strings.Contains(string(f.Charts[1].SVG), "veth") {
		t.Errorf("%d charts", len(f.Charts))
	}
	if f := find(dataOf(map[string][]result.Row{PartCPU: {rowOf("veth", 64, 1, 1, 1), rowOf("exn:napi", 64, 1, 1, 1)}})); len(f.Charts) != 1 {
		t.Errorf("%d charts without a count", len(f.Charts))
	}
}

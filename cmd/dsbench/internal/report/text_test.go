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

// What a sentence says about two paths is what their runs bear out.
func TestVersus(t *testing.T) {
	lo := rowOf("lo", 64, 9, 10, 11)
	for _, tt := range []struct {
		r    result.Row
		want string
	}{
		{rowOf("ds", 64, 29, 30, 31), "30 Gbit/s (3.0 times as fast as lo)"},
		{rowOf("ds", 64, 10, 11, 12), "11 Gbit/s (1.1 times as fast as lo, the runs overlap)"},
		{rowOf("ds", 64, 25, 50, 60), "50 Gbit/s (25 to 60; 5.0 times as fast as lo)"},
		{rowOf("ds", 64, 8, 20, 60), "20 Gbit/s (8 to 60; 2.0 times as fast as lo, the runs overlap)"},
		{rowOf("ds", 64, 11), "11 Gbit/s (1.1 times as fast as lo)"}, // one run says nothing of noise
	} {
		if got := versus(&tt.r, &lo, 1, gbits); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.r.Values, got, tt.want)
		}
	}
}

// dataOf is a report with these rows.
func dataOf(parts map[string][]result.Row) *Data {
	d := &Data{}
	for id, rows := range parts {
		d.Parts = append(d.Parts, Part{ID: id, Rows: rows})
	}
	return d
}

// A sentence names the worst of a figure, not only the size at which it is good.
func TestSentences(t *testing.T) {
	d := dataOf(map[string][]result.Row{
		PartStream1: {rowOf("lo", 64<<10, 40, 40, 41), rowOf("exn:napi", 64<<10, 10, 10, 11)},
		PartStream2: {rowOf("lo", 64<<10, 60, 60, 61), rowOf("exn:napi", 64<<10, 20, 20, 21)},
		PartCPU: {rowOf("exn:interrupt", 64, 20, 21, 22), rowOf("exn:napi", 64, 10, 10, 11), rowOf("exn:adaptive", 64, 15, 15, 16),
			rowOf("exn:interrupt", 4096, 2, 2, 2), rowOf("exn:napi", 4096, 1, 1, 1), rowOf("exn:adaptive", 4096, 1, 1, 1)},
		PartRate: {rowOf("lo", 64, 1, 1, 1), rowOf("exn:napi", 64, 4, 4, 4), rowOf("exn:napi", 512, 0.5, 1, 6), rowOf("exn:napi", 4096, 3, 3, 3)},
		PartPrograms: {{Measure: "iperf3", Path: "tcp", Unit: gbits, Median: 2, Min: 1, Max: 4, Noisy: true},
			{Measure: "iperf3", Path: "direct", Unit: gbits, Median: 8, Min: 8, Max: 8}},
	})
	for got, want := range map[string]string{
		d.sayBandwidth(): "Two connections, measured after one, move 2.0 times as much over exn0, and 1.5 times over lo.",
		d.sayCPU():       "The dynamic ITR takes 1.0 (4 KiB) to 1.5 (64 bytes) times the CPU time of the cheaper of both.",
		d.sayRate():      "At the slowest size, 512 bytes, it is 1 million (0.5 to 6);",
		d.sayPrograms():  "iperf3 2 Gbit/s (1 to 4) and 8 Gbit/s.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if p := d.programPairs()[0]; p.times != 4 || p.low != 2 || p.high != 8 {
		t.Errorf("%+v", p)
	}
}

// What NAPI takes of an interrupt for each frame is said with its noise.
func TestSayCPU(t *testing.T) {
	irq := rowOf("exn:interrupt", 64, 9, 10, 11)
	for _, tt := range []struct {
		napi result.Row
		want string
	}{
		{rowOf("exn:napi", 64, 4, 5, 6), "NAPI never takes more CPU time than an interrupt for each frame (at most 0.50 of it, at 64 bytes)."},
		{rowOf("exn:napi", 64, 7, 8, 9), "NAPI never takes more CPU time than an interrupt for each frame (at most 0.80 of it, at 64 bytes, the runs overlap)."},
		{rowOf("exn:napi", 64, 9, 20, 21), "NAPI takes at most 2.0 times the CPU time of an interrupt for each frame (at 64 bytes, the runs overlap)."},
		{rowOf("exn:napi", 64, 19, 20, 21), "NAPI takes at most 2.0 times the CPU time of an interrupt for each frame (at 64 bytes)."},
	} {
		if got := dataOf(map[string][]result.Row{PartCPU: {irq, tt.napi}}).sayCPU(); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.napi.Values, got, tt.want)
		}
	}
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
	const want = "For a gigabyte the NICs raise, as a share of the interrupts of a mode with one for each frame: " +
		"with NAPI 0.25 (64 bytes) to 1.2 (4 KiB), with the dynamic ITR 0.10 (64 bytes) to 0.50 (4 KiB)."
	if got := d.sayInterrupts(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	find := func(d *Data) reportFigure {
		for _, f := range d.figures() {
			if f.ID == "fig-5-29" {
				return f
			}
		}
		t.Fatal("no figure 5.29")
		return reportFigure{}
	}
	f := find(d)
	if len(f.Charts) != 2 || strings.Contains(string(f.Charts[1].SVG), "veth") || !strings.Contains(f.Says, want) {
		t.Errorf("%d charts, %q", len(f.Charts), f.Says)
	}
	if f := find(dataOf(map[string][]result.Row{PartCPU: {rowOf("veth", 64, 1, 1, 1), rowOf("exn:napi", 64, 1, 1, 1)}})); len(f.Charts) != 1 {
		t.Errorf("%d charts without a count", len(f.Charts))
	}
}

package report

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/stats"
)

// rowOf makes a row of the runs' values, whose control is lo.
func rowOf(path string, size int, values ...float64) result.Row {
	s := stats.Summarize(values)
	return result.Row{Path: path, Size: size, Control: "lo", Median: s.Median, Min: s.Min, Max: s.Max, Values: values, Spread: s.Spread(), Noisy: s.Spread() > result.NoiseBound}
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
	d := dataOf(map[string][]result.Row{PartStream1: rows(gbits, 10, 20), PartLatency: rows("us", 30, 10), PartRate: rows("million/s", 1, 0.5), PartCRR: append(rows("/s", 10, 10), rowOf("net", 64, 10))})
	titles, summary := d.summaryTable()
	want := []string{"2.0", "3.0", "3.0", "0.50", "1.0", "4.0"}
	for i, c := range summary[1].Cells {
		if c.Ratio != want[i] || summary[0].Cells[i].Ratio != "1.0" {
			t.Errorf("%s: %q, want %q; lo has %q", titles[i], c.Ratio, want[i], summary[0].Cells[i].Ratio)
		}
	}
	if len(summary[1].Cells) != len(want) {
		t.Errorf("%d columns", len(summary[1].Cells))
	}
}

// ratios lists what a page and README say of a report: the ratios of the summary and of the data
// by part and path, README's rows by what they begin with.
func ratios(t *testing.T, d *Data) (page map[string][]string, readme map[string][]string) {
	t.Helper()
	text, err := Render(d)
	if err != nil {
		t.Fatal(err)
	}
	page, readme = map[string][]string{}, map[string][]string{}
	titles, rows := d.summaryTable()
	for _, r := range rows {
		for i, c := range r.Cells {
			page[titles[i]+" "+r.Path] = []string{c.Ratio}
		}
	}
	_, data, _ := strings.Cut(string(text), "<summary>Every figure</summary>")
	cell := regexp.MustCompile("<td[^>]*>([^<]*)</td>")
	for part := range strings.SplitSeq(data, "<h3>") {
		name, body, _ := strings.Cut(part, "</h3>")
		for row := range strings.SplitSeq(body, "<tr>") {
			if c := cell.FindAllStringSubmatch(row, -1); c != nil {
				key := name + " " + html.UnescapeString(c[0][1])
				page[key] = append(page[key], c[7][1])
			}
		}
	}
	for line := range strings.Lines(d.formatTables("x.json")) {
		if c := strings.Split(line, "|"); len(c) > 4 {
			readme[c[1]] = c
		}
	}
	return page, readme
}

// Each ratio of a report is the same in the summary, in the data and in README: above 1 is
// better.
func TestControls(t *testing.T) {
	set := func(unit string, rows ...result.Row) []result.Row {
		for i := range rows {
			rows[i].Unit = unit
		}
		return rows
	}
	d := dataOf(map[string][]result.Row{
		PartStream1: set(gbits, rowOf("lo", 64<<10, 10), rowOf("ds", 64<<10, 20)),
		PartLatency: set("us", rowOf("lo", 64, 30), rowOf("ds", 64, 0.25), rowOf("exn:napi", 64, 300)),
		PartRate:    set("Mmsg/s", rowOf("lo", 64, 1), rowOf("ds", 64, 10)),
		PartCPU:     set("s/GB", rowOf("lo", 64, 4), rowOf("exn:napi", 64, 1)),
		PartCRR: set("conn/s", rowOf("lo", 64, 100), rowOf("net", 64, 80), rowOf("veth", 64, 90), rowOf("ds", 64, 72), rowOf("net-exn", 64, 50),
			rowOf("ds-exn", 64, 40)),
	})
	page, readme := ratios(t, d)
	for key, want := range map[string]string{
		PartStream1 + " ds": "2.0", summaries[0].title + " ds": "2.0",
		PartLatency + " ds": "120", summaries[1].title + " ds": "120",
		PartLatency + " exn:napi": "0.10", summaries[1].title + " exn:napi": "0.10",
		PartRate + " ds": "10", summaries[3].title + " ds": "10",
		PartCPU + " exn:napi": "4.0",
		PartCRR + " ds":       "0.90", summaries[4].title + " ds": "0.90", // of net
		PartCRR + " ds-exn": "0.80", summaries[4].title + " ds-exn": "0.80", // of net-exn
		PartCRR + " net-exn": "0.50", summaries[4].title + " net-exn": "0.50",
		PartCRR + " net": "0.80", PartCRR + " lo": "1.0",
	} {
		if got := page[key]; len(got) != 1 || got[0] != want {
			t.Errorf("the page has × %v for %s, want %s", got, key, want)
		}
	}
	row := readme[" `ds`: direct sockets, two processes "]
	if len(row) < 10 || row[3]+row[5]+row[7]+row[9] != " 2.0  120  10  0.90 " {
		t.Errorf("README has %v for ds", row)
	}
}

// How many times as fast a program is comes of the rounds, in the figure and in the data as in
// README.
func TestProgramRounds(t *testing.T) {
	tcp, direct := rowOf("tcp", 0, 10, 20, 40), rowOf("direct", 0, 40, 50, 160) // the medians would say 2.5
	slow, fast := rowOf("tcp", 0, 20), rowOf("direct", 0, 0.5)
	rows := []result.Row{tcp, direct, slow, fast}
	for i := range rows {
		rows[i].Control, rows[i].Measure, rows[i].Unit = "tcp", "iperf3", gbits
		if i > 1 {
			rows[i].Measure, rows[i].Unit = "sockperf", "us"
		}
	}
	d := dataOf(map[string][]result.Row{PartPrograms: rows})
	page, readme := ratios(t, d)
	drawing := string(d.drawSpeedups().SVG)
	for _, want := range []struct{ name, times string }{{"iperf3", "4.0 (2.5 to 4.0)"}, {"sockperf", "40"}} {
		short, _, _ := strings.Cut(want.times, " ")
		if got := page[PartPrograms+" "+want.name+", direct"]; len(got) != 1 || got[0] != want.times {
			t.Errorf("the data have × %v for %s, want %s", got, want.name, want.times)
		}
		if row := readme[" "+programNames[want.name]+" "]; len(row) < 5 || row[4] != " "+want.times+" " {
			t.Errorf("README has %v for %s, want × %s", row, want.name, want.times)
		}
		if !strings.Contains(drawing, want.name+": "+short+"</title>") {
			t.Errorf("the figure does not have %s: %s", want.name, short)
		}
	}
}

// In print the table of data is not cut: what holds there stands behind what it overrides.
func TestPrintRulesAreLast(t *testing.T) {
	screen, wide := strings.Index(reportTemplate, ".wide{overflow-x:auto"), strings.LastIndex(reportTemplate, ".wide{overflow:visible}")
	if printed := strings.LastIndex(reportTemplate, "@media print{"); screen < 0 || wide < printed || printed < screen {
		t.Errorf("rules of the screen at %d, of print at %d with .wide at %d", screen, printed, wide)
	}
}

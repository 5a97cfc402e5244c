package report

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
)

// The marks between which a text is generated.
const (
	readmeBegin = "<!-- begin: dsbench readme -->"
	readmeEnd   = "<!-- end: dsbench readme -->"
)

// ErrNoMarks says that a text has no place for the tables.
var ErrNoMarks = errors.New("the file lacks the lines " + readmeBegin + " and " + readmeEnd)

// ReplaceTables returns a text of Markdown with the report's tables between its
// marks. source is the report's JSON, as the text links it.
func ReplaceTables(text string, d *Data, source string) (string, error) {
	before, rest, ok := strings.Cut(text, readmeBegin)
	_, after, ok2 := strings.Cut(rest, readmeEnd)
	if !ok || !ok2 {
		return "", ErrNoMarks
	}
	return before + readmeBegin + "\n" + d.formatTables(source) + readmeEnd + after, nil
}

// readmePaths are the rows of the table, and how it calls them.
var readmePaths = []struct{ name, text string }{
	{"lo", "loopback (kernel, the control)"},
	{goNet, "loopback by Go's package net, the control of `ds`'s connections"},
	{"veth", "pair (kernel)"},
	{"exn:napi", "`exn0`, both nodes in one process"},
	{"exn-shm", "`exn0`, a daemon for each node"},
	{"ds", "direct sockets, two processes"},
	{"ds-zcopy", "direct sockets, registered buffers"},
	{"ds-exn", "direct sockets, two namespaces, shadow on `exn0`"},
	{"ds-fabric", "direct sockets through the fabric"},
}

// programNames are the pairs of programs, in words.
var programNames = map[string]string{
	"iperf3": "iperf3, one stream", "iperf3-4": "iperf3, four streams",
	"sockperf": "sockperf ping-pong, 64 bytes, two cores", "sockperf-one-cpu": "the same, both on one core",
	"redis-benchmark": "redis-benchmark GET", "nginx-wrk": "nginx under wrk, 1 KiB, keep-alive", "pgbench": "pgbench, select only",
	"iperf3-plain-peer": "iperf3 with a plain TCP peer",
}

// formatTables writes the paths and the programs.
func (d *Data) formatTables(source string) string {
	var b strings.Builder
	m := d.Machine
	result.Wrap(&b, fmt.Sprintf("%s, %s (%s, Linux %s, %s), cores %s%s. Medians of %s of %s, interleaved; TCP with %s. **×** says how many times as fast as TCP a path is: the median of rounds that run both. %s %s",
		d.startTime().Format("2 January 2006"), display.Count(m.CPUs, "CPU"), m.CPU, m.Kernel, m.Go, d.coreDistance(), d.commitText(),
		display.Count(d.Runs, "run"), spanText(d.Duration), d.TCP, result.RangeText(), d.noiseText()))
	b.WriteString("\n| path | stream, 64 KiB | × | 64 B, half round trip | × | messages of 64 B | × | connections | × |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range readmePaths {
		stream, latency := d.rowOf(PartStream1, p.name, 64<<10), d.rowOf(PartLatency, p.name, 64)
		rate, crr := d.rowOf(PartRate, p.name, 64), d.rowOf(PartCRR, p.name, 64)
		if stream == nil && latency == nil && (p.name != goNet || crr == nil) { // a row of gaps
			continue
		}
		fmt.Fprintf(&b, "| `%s`: %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", p.name, p.text,
			figureOf(stream, gbits), d.timesControl(PartStream1, stream), figureOf(latency, micros), d.timesControl(PartLatency, latency),
			figureOf(rate, "M/s"), d.timesControl(PartRate, rate), figureOf(crr, "/s"), d.timesControl(PartCRR, crr))
	}
	if pairs := d.programPairs(); len(pairs) > 0 {
		b.WriteByte('\n')
		result.Wrap(&b, fmt.Sprintf("Unmodified programs on loopback, without `exn-run --loopback` and with it (%s):", d.programsHow()))
		b.WriteString("\n| programs | TCP | direct | × |\n|---|---|---|---|\n")
		for _, s := range pairs {
			name := cmp.Or(programNames[s.tcp.Measure], s.tcp.Measure)
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, figureOf(s.tcp, unitText(s.tcp.Unit)), figureOf(s.direct, unitText(s.direct.Unit)), s.times)
		}
	}
	b.WriteByte('\n')
	result.Wrap(&b, fmt.Sprintf("The whole run: [%s](%s). All its figures: `dsbench report --from FILE`.", path.Base(source), source))
	return b.String()
}

// figureOf writes a row's median; "": it was not measured.
func figureOf(r *result.Row, unit string) string {
	if r == nil {
		return ""
	}
	text := display.Number(r.Median)
	if strings.HasPrefix(unit, "/") {
		text += unit
	} else {
		text += " " + unit
	}
	if r.Noisy {
		text += " (!)"
	}
	return text
}

// noiseText says how steady the run was: how many of its figures are marked.
func (d *Data) noiseText() string {
	noisy, all := d.countNoisy()
	if noisy == 0 {
		return "No figure is noisy."
	}
	text := fmt.Sprintf("(!) marks a noisy figure, whose runs spread as far: %d of the %d figures of the whole run.", noisy, all)
	if noisy*10 > all { // more than a tenth
		text += " The machine was not quiet."
	}
	return text
}

// unitText writes a unit as people do.
func unitText(unit string) string {
	switch unit {
	case "us":
		return micros
	case "1/s":
		return "/s"
	}
	return unit
}

// commitText is the commit's short name, as the end of a list; "" if it is not known.
func (d *Data) commitText() string {
	c, changed := strings.CutSuffix(d.Machine.Commit, "+")
	if c == "" {
		return "" // the build did not know it
	}
	c = ", commit " + c[:min(len(c), 7)]
	if changed {
		c += " with changes"
	}
	return c
}

// programsHow says how the programs were measured.
func (d *Data) programsHow() string {
	i := slices.IndexFunc(d.Parts, func(p Part) bool { return p.ID == PartPrograms })
	_, text, _ := strings.Cut(d.Parts[i].settingsText(), ": ")
	return text
}

package report

import (
	"html/template"
	"slices"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/svgplot"
)

// What the thesis prints in its text (section 5.6.3); its figures have no numbers.
const (
	thesisOne = 8 * 7.9  // Gbit/s, EXN, one stream
	thesisTwo = 8 * 8.82 // Gbit/s, two streams
	thesisEXN = 5.7      // µs, half a round trip, small messages, bound to the near socket
	thesisDS  = 0.85     // µs, AF_EXTL
)

// Units of the page. A stream is in gigabits a second everywhere, also where the
// thesis has gigabytes.
const (
	gbits    = "Gbit/s"
	micros   = "µs"
	halfTrip = "half round trip (" + micros + ")"
)

// reportFigure is a figure of the page.
type reportFigure struct {
	ID     string // anchor
	Title  string
	Charts []chart
	Says   string   // what it shows
	How    []string // with which settings, of each part
	Notes  []string
}

// chart is a drawing with what goes above it.
type chart struct {
	Title string
	SVG   template.HTML
}

// pathColours has the colour of each path: one of its own, the same on the whole page. Old results
// have paths that are no more: velo, rma, ring, sockmap.
var pathColours = map[string]int{
	"lo": 7, "veth": 9, "exn": 0, "exn:napi": 0, "exn:interrupt": 4, "exn:busy": 5, "exn:adaptive": 8, "exn-shm": 15, "netstack": 6,
	"ds": 2, "ds-zcopy": 1, "ds-exn": 3, "net": 10, "net-exn": 12, "velo": 11, "velo-shm": 16, "rma": 14, "rma-shm": 18,
	"exn-stream": 13, "exn-ofi": 17, "ds-fabric": 19, "relay": 20, "ring": 21,
	"unix": 22, "sockmap": 23,
}

// settingColour is that of bars which are not paths but values of a setting.
const settingColour = 7

// value takes from a row what is drawn, with the extremes of the runs.
type value func(r result.Row) (v, low, high float64)

// scaledMedian is the median times a factor.
func scaledMedian(factor float64) value {
	return func(r result.Row) (float64, float64, float64) {
		return r.Median * factor, r.Min * factor, r.Max * factor
	}
}

// medianAndQuartiles is the median, with the quartiles of all operations for extremes.
func medianAndQuartiles(r result.Row) (v, low, high float64) {
	if r.P25 == nil || r.P75 == nil {
		return r.Median, r.Min, r.Max
	}
	return r.Median, *r.P25, *r.P75
}

// makeSeries makes a line for each path of a part.
func (d *Data) makeSeries(part string, v value) (list []svgplot.Series) {
	for _, r := range d.rowsOfPart(part) {
		i := slices.IndexFunc(list, func(s svgplot.Series) bool { return s.Name == r.Path })
		if i < 0 {
			i = len(list)
			list = append(list, svgplot.Series{Name: r.Path, Colour: pathColours[r.Path]})
		}
		y, low, high := v(r)
		list[i].Points = append(list[i].Points, svgplot.Point{X: float64(r.Size), Y: y, Low: low, High: high})
	}
	return list
}

// drawLines draws a part over message size, both axes logarithmic.
func (d *Data) drawLines(part, title, unit string, v value, refs ...svgplot.Ref) chart {
	l := svgplot.Lines{
		Title: title, X: svgplot.Axis{Label: "message size (bytes)", Log: true, Format: display.Size},
		Y: svgplot.Axis{Label: unit, Log: true}, Series: d.makeSeries(part, v), Refs: refs,
	}
	return chart{title, template.HTML(l.SVG())}
}

// drawBars draws a part at one size.
func (d *Data) drawBars(part, title, unit string, log bool, v value) chart {
	b := svgplot.Bars{Title: title, X: svgplot.Axis{Label: unit, Log: log}}
	for _, r := range d.rowsOfPart(part) {
		y, low, high := v(r)
		c, known := pathColours[r.Path]
		if !known {
			c = settingColour
		}
		b.Bars = append(b.Bars, svgplot.Bar{Name: microText(r.Path), Colour: c, Value: y, Low: low, High: high})
	}
	return chart{title, template.HTML(b.SVG())}
}

// figures are those of the page, in its order.
var figures = []struct {
	id, title string
	says      string // what it shows, and what the thesis has
	drawings  []drawing
	mpi       string // the measure of MPI that the figure is of in the thesis; "": none
}{
	{"fig-5-26", "Bandwidth over message size (figure 5.26)",
		"What a receiving program gets: above is faster. The thesis's EXN reached 63 Gbit/s (7.9 GB/s) with one connection and 71 with two, on a 100G network.",
		[]drawing{
			overSize(PartStream1, "One connection", gbits, svgplot.Ref{Y: thesisOne, Label: "thesis, EXN: 63 (7.9 GB/s)"}),
			overSize(PartStream2, "Two connections", gbits, svgplot.Ref{Y: thesisTwo, Label: "thesis, EXN: 71 (8.82 GB/s)"}),
		}, ""},
	{"fig-5-27", "Tuning (figure 5.27)",
		"A stream of 64 KiB messages with one setting varied; longer is faster. The thesis saw 42 to 63 Gbit/s (5.3 to 7.9 GB/s) by the choice of the CPU socket, and 66 with sysctl set.",
		[]drawing{
			atSize(PartCPUs, "CPUs of the two ends", gbits), atSize(PartDSCPUs, "CPUs of direct sockets", gbits), atSize(PartMTU, "MTU of exn0", gbits),
			atSize(PartBuffers, "Socket buffers", gbits), atSize(PartCoalesce, "Coalescing of interrupts", gbits),
			atSize(PartEager, "Eager threshold, messages of 1 KiB", "million messages/s"),
		}, ""},
	{"fig-5-28", "Half a round trip (figure 5.28)",
		"Below is faster. The thesis's EXN took 5.7 to 8.6 µs and its AF_EXTL 0.85 to 1.3, between two machines.",
		[]drawing{
			overSize(PartLatency, "1 to 2048 bytes", halfTrip, svgplot.Ref{Y: thesisEXN, Label: "thesis, EXN: 5.7"}, svgplot.Ref{Y: thesisDS, Label: "thesis, AF_EXTL: 0.85"}),
			{PartIdle, func(d *Data) chart {
				return d.drawBars(PartIdle, "64 bytes after a rest; half of the round trips lie between the marks", halfTrip, false, medianAndQuartiles)
			}},
		}, ""},
	{"fig-5-29", "CPU time (figure 5.29)",
		"What all processes of the path take, user and system: below is cheaper. In the thesis, too, each byte costs less in larger frames.",
		[]drawing{overSize(PartCPU, "Every message a frame", "CPU s/GB")}, ""},
	{"fig-5-30", "Latency of larger messages (figure 5.30)", "Below is faster.",
		[]drawing{overSize(PartOSULat, "8 bytes to 512 KiB", halfTrip)}, " latency"},
	{"fig-5-31", "Bandwidth of all layers (figure 5.31)",
		"Above is faster. Direct sockets have two copies, or one between registered buffers; TCP over exn0 has two more, and the kernel's TCP at both ends.",
		[]drawing{overSize(PartOSUBW, "TCP and direct sockets", gbits)}, " bandwidth"},
	{"fig-5-32", "Message rate (figure 5.32)", "Above is faster. The thesis's rate is level from 32 bytes to 8 KiB.",
		[]drawing{overSize(PartRate, "Messages one way", "million messages/s")}, " rate"},
	{"crr", "Connect, request, response, close",
		"Longer is faster. A connection for one request stays on TCP. Direct sockets are Go's here: net is their control, and net-exn over exn0.",
		[]drawing{atSize(PartCRR, "64 bytes each way", "connections a second")}, ""},
	{"programs", "Real programs under exn-run", "How many times as fast unmodified programs on loopback are with exn-run, in the same round; the marks are the middle half of the rounds.",
		[]drawing{{PartPrograms, (*Data).drawSpeedups}}, ""},
}

// drawing is a chart of a part. A chart without an SVG is left out.
type drawing struct {
	part string
	draw func(*Data) chart
}

// overSize draws the medians of a part over message size.
func overSize(part, title, unit string, refs ...svgplot.Ref) drawing {
	return drawing{part, func(d *Data) chart { return d.drawLines(part, title, unit, scaledMedian(1), refs...) }}
}

// atSize draws the medians of a part at its one size.
func atSize(part, title, unit string) drawing {
	return drawing{part, func(d *Data) chart { return d.drawBars(part, title, unit, false, scaledMedian(1)) }}
}

// drawnFigures returns the figures of what was measured.
func (d *Data) drawnFigures() (list []reportFigure) {
	for _, f := range figures {
		v := reportFigure{ID: f.id, Title: f.title, Says: f.says}
		var drawings []drawing
		if f.mpi != "" {
			for _, m := range mpis {
				drawings = append(drawings, overSize(m.name+f.mpi, m.text, unitOfMPI[f.mpi]))
			}
		}
		var seen []string
		for _, g := range append(drawings, f.drawings...) {
			if d.rowsOfPart(g.part) != nil {
				if c := g.draw(d); c.SVG != "" {
					v.Charts = append(v.Charts, c)
				}
			}
			if !slices.Contains(seen, g.part) {
				seen = append(seen, g.part)
				d.describeFigure(&v, g.part)
			}
		}
		if f.mpi != "" && !d.hasMPI(f.mpi) {
			v.Says += noMPI
		}
		if len(v.Charts) > 0 || len(v.Notes) > 0 {
			list = append(list, v)
		}
	}
	return list
}

// noMPI says what figures 5.30 to 5.32 are in the thesis, where MPI was not measured here.
const noMPI = " In the thesis this figure is MPI over EXN (Open MPI, OSU Micro-Benchmarks); MPI was not measured here."

// unitOfMPI has the units of MPI's measures.
var unitOfMPI = map[string]string{" latency": halfTrip, " bandwidth": gbits, " rate": "million messages/s"}

// hasMPI reports whether some MPI has a measure.
func (d *Data) hasMPI(measure string) bool {
	return slices.ContainsFunc(mpis, func(m mpi) bool { return d.rowsOfPart(m.name+measure) != nil })
}

// describeFigure adds to a figure how a part was measured, and what went wrong.
func (d *Data) describeFigure(f *reportFigure, id string) {
	for _, p := range d.Parts {
		if p.ID != id {
			continue
		}
		if p.Note != "" {
			f.Notes = append(f.Notes, p.Note)
		}
		if how := p.settingsText(); how != "" {
			f.How = append(f.How, how)
		}
	}
}

// speedup is how many times as fast a program is under exn-run.
type speedup struct {
	times       result.Times
	tcp, direct *result.Row
}

func (d *Data) programPairs() (list []speedup) {
	rows := d.rowsOfPart(PartPrograms)
	for i := range rows {
		if tcp := d.controlOf(PartPrograms, &rows[i]); tcp != nil && rows[i].Path != tcp.Path {
			list = append(list, speedup{d.timesControl(PartPrograms, &rows[i]), tcp, &rows[i]})
		}
	}
	return list
}

// drawSpeedups draws them.
func (d *Data) drawSpeedups() chart {
	b := svgplot.Bars{
		Title: "Direct sockets instead of TCP", X: svgplot.Axis{Label: "times as fast as TCP over loopback", Log: true, Format: result.TimesText},
		Refs: []svgplot.Ref{{Y: 1, Label: "as TCP"}},
	}
	for _, s := range d.programPairs() {
		b.Bars = append(b.Bars, svgplot.Bar{Name: s.direct.Measure, Colour: pathColours["ds"], Value: s.times.Median, Low: s.times.Low, High: s.times.High})
	}
	return chart{b.Title, template.HTML(b.SVG())}
}

// summaryRow is a path's row of the summary.
type summaryRow struct {
	Path  string
	Cells []summaryCell
}

// summaryCell is a figure, and how many times as good as its control's it is; "" if it was not
// measured.
type summaryCell struct {
	Value, Ratio string
	Noisy        bool
}

// summaries are the columns of the summary. further takes another figure than the median from a
// row; less of that is better.
var summaries = []struct {
	title, part string
	size        int
	further     func(result.Row) *float64
}{
	{"stream, 64 KiB, " + gbits, PartStream1, 64 << 10, nil},
	{"half round trip, 64 B, " + micros, PartLatency, 64, nil},
	{"p99 of it, " + micros, PartLatency, 64, func(r result.Row) *float64 { return r.P99 }},
	{"messages of 64 B, million/s", PartRate, 64, nil},
	{"connections a second", PartCRR, 64, nil},
	{"CPU s/GB, 64 KiB", PartStream1, 64 << 10, func(r result.Row) *float64 { return r.CPUPerGB }},
}

// summaryTable returns the table of the paths at the usual sizes.
func (d *Data) summaryTable() (titles []string, rows []summaryRow) {
	var names []string
	for _, s := range summaries {
		titles = append(titles, s.title)
		for _, r := range d.rowsOfPart(s.part) {
			if r.Size == s.size && !slices.Contains(names, r.Path) {
				names = append(names, r.Path)
			}
		}
	}
	for _, name := range names {
		sr := summaryRow{Path: name}
		for _, s := range summaries {
			var c summaryCell
			if r := d.rowOf(s.part, name, s.size); r != nil {
				c = d.summaryOf(s.part, r, s.further)
			}
			sr.Cells = append(sr.Cells, c)
		}
		rows = append(rows, sr)
	}
	return titles, rows
}

// summaryOf is the cell of a row: its median, or a further figure of it.
func (d *Data) summaryOf(part string, r *result.Row, further func(result.Row) *float64) summaryCell {
	if further == nil {
		return summaryCell{display.Number(r.Median), d.timesControl(part, r).String(), r.Noisy}
	}
	v := further(*r)
	if v == nil {
		return summaryCell{}
	}
	c := summaryCell{Value: display.Number(*v), Noisy: r.Noisy}
	if control := d.controlOf(part, r); control != nil {
		if of := further(*control); of != nil {
			c.Ratio = result.TimesOf(lessIsBetter, []float64{*v}, []float64{*of}).String()
		}
	}
	return c
}

// lessIsBetter is a unit of the further figures of the summary.
const lessIsBetter = "us"

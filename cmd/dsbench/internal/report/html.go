package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
)

//go:embed report.tmpl.html
var reportTemplate string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"figure": display.Figure, "unit": unitText, "micro": microText, "optional": result.Optional, "percent": display.Percent, "bytes": func(n int) string { return display.Size(float64(n)) },
	"name": rowName, "breakable": breakableName,
}).Parse(reportTemplate))

// breakableName is the name of a path that a narrow table breaks behind a colon.
func breakableName(name string) template.HTML {
	return template.HTML(strings.ReplaceAll(html.EscapeString(name), ":", ":<wbr>")) // escaped
}

// reportView is what the template shows.
type reportView struct {
	*Data
	Title   string
	When    string
	About   []string // of machine and method
	Warn    []string
	Columns []string
	Summary []summaryRow
	Figures []reportFigure
	Paths   []paths.Kind
	JSON    template.JS
}

// Times says how many times as good as its control a row of a part is; "-" if it has none.
func (v reportView) Times(part string, r result.Row) string {
	return cmp.Or(v.timesControl(part, &r).String(), "-")
}

// Render makes the page.
func Render(d *Data) ([]byte, error) {
	text, err := json.Marshal(d) // with <, > and & escaped: nothing in it ends the script
	if err != nil {
		return nil, err
	}
	v := reportView{
		Data: d, Title: "exnet: TCP/IP over an emulated EXTOLL fabric, measured",
		When: d.startTime().Format("2 January 2006, 15:04 MST"), Figures: d.drawnFigures(), JSON: template.JS(text),
		Warn: d.listWarnings(), Paths: d.listPaths(),
	}
	v.Columns, v.Summary = d.summaryTable()
	m := d.Machine
	v.About = []string{
		m.CPU, display.Count(m.CPUs, "CPU"), d.distanceText(), "Linux " + m.Kernel, m.Go,
		fmt.Sprintf("%s of %s after %s of warm-up for each figure, interleaved over the paths", display.Count(d.Runs, "run"),
			spanText(d.Duration), spanText(d.Warmup)),
		"TCP " + d.TCP, "took " + spanText(d.Took),
	}
	if m.Commit != "" {
		v.About = append(v.About, "commit "+m.Commit)
	}
	var b bytes.Buffer
	if err := reportPage.Execute(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// distanceText says how far they are from each other.
func (d *Data) distanceText() string {
	text := "CPUs " + microText(d.Distance.String())
	if c := d.coreDistance(); c != d.Distance.Cores {
		text += "; " + c
	}
	return text
}

// listWarnings lists what a reader has to know before believing anything.
func (d *Data) listWarnings() (list []string) {
	if d.Partial != "" {
		list = append(list, "Not complete: "+d.Partial+".")
	}
	if d.Quick {
		list = append(list, "A quick run: few sizes, short measurements. For figures to keep, run dsbench report without --quick.")
	}
	if d.Busy > 0.1 {
		list = append(list, fmt.Sprintf("Other programs used %s of a CPU when this began.", display.Percent(d.Busy)))
	}
	if noisy, of := d.countNoisy(); noisy > 0 {
		text := fmt.Sprintf("%d of %d figures are noisy: %s. They are marked.", noisy, of, result.NoiseText())
		if noisy*4 > of {
			text += " That is many: repeat it when the machine is quiet."
		}
		list = append(list, text)
	}
	for _, s := range d.Skipped {
		list = append(list, fmt.Sprintf("Path %s could not be measured: %s.", s.Path, strings.TrimSuffix(s.Why, ".")))
	}
	return list
}

// listPaths lists those that the page speaks of, to explain them.
func (d *Data) listPaths() (list []paths.Kind) {
	seen := map[string]bool{}
	for _, p := range d.Parts {
		for _, r := range p.Rows {
			if k, err := paths.KindOf(r.Path); err == nil && !seen[r.Path] {
				seen[r.Path] = true
				list = append(list, k)
			}
		}
	}
	return list
}

// microText writes microseconds with their letter wherever a text has them as us.
func microText(s string) string { return microseconds.ReplaceAllString(s, micros) }

var microseconds = regexp.MustCompile(`\bus\b`)

// rowName is a row's name in a table: a program's rows have it with its path.
func rowName(r result.Row) string {
	if r.Path == "tcp" || r.Path == "direct" {
		return r.Measure + ", " + r.Path
	}
	return microText(r.Path)
}

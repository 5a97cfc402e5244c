package bench

import (
	"path/filepath"

	"exnet/cmd/dsbench/internal/report"
	"exnet/internal/display"
)

// comparePage is the page of a comparison, in the frame of the report.
func comparePage(files []string, list []comparison, summary string) ([]byte, error) {
	c := report.Compared{A: filepath.Base(files[0]), B: filepath.Base(files[1]), Summary: summary}
	for _, x := range list {
		c.Rows = append(c.Rows, report.ComparedRow{
			Measure: x.Measure, Path: x.Path, Size: x.Size, Streams: x.Streams, Unit: x.Unit,
			A: display.Figure(x.A), B: display.Figure(x.B), Ratio: display.Figure(x.Ratio), Verdict: x.Verdict, Counts: x.significant(),
		})
	}
	return c.Page()
}

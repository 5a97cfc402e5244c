package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/tcpbench"
)

// column is a column of the table.
type column struct {
	title string
	width int // negative: left-aligned
	cell  func(result.Row) string
}

// tableSink writes a table for people, size by size as they are measured.
type tableSink struct {
	w     io.Writer
	o     options
	m     result.Machine
	begun bool
	ruled bool     // the control has a row
	cores string   // of the last row
	noisy []string // figures that should not be believed
}

// head writes what comes before the first row.
func (s *tableSink) head(b *strings.Builder, d coredist.Distance) {
	s.begun = true
	o := s.o
	what := o.measure.title + " " + display.Count(o.streams, "connection")
	if o.reverse {
		what += ", the server sends"
	}
	if o.noDelay {
		what += ", TCP_NODELAY"
	}
	if o.rest > 0 {
		what += fmt.Sprintf(", %v of rest before each message", o.rest)
	}
	where := "the scheduler places both ends"
	if o.cpus != tcpbench.Anywhere() {
		where = fmt.Sprintf("client on CPU %d, server on CPU %d", o.cpus.Client, o.cpus.Server)
	}
	result.Wrap(b, fmt.Sprintf("%s, %s, %s of %v each, interleaved, after %v of warm-up; %s.",
		what, o.congestion, display.Count(o.runs, "run"), o.duration, o.warmup, where))
	result.Wrap(b, s.m.String()+".")
	result.Wrap(b, "CPUs "+d.String()+".")
	b.WriteByte('\n')
	s.line(b, func(c column) string { return c.title })
}

func (s *tableSink) rows(rows []result.Row) error {
	var b strings.Builder
	for _, r := range rows {
		if !s.begun {
			s.head(&b, r.Distance)
			s.cores = r.Cores
		}
		if r.Cores != s.cores {
			s.cores = r.Cores
			result.Wrap(&b, "CPUs now "+r.Distance.String()+".")
		}
		s.line(&b, func(c column) string { return c.cell(r) })
		s.ruled = s.ruled || r.Path == s.o.control
		if r.Noisy {
			s.noisy = append(s.noisy, fmt.Sprintf("%s at %s (%s)", r.Path, display.Count(r.Size, "byte"), display.Percent(r.Spread)))
		}
	}
	return s.write(b.String())
}

func (s *tableSink) end() error {
	if !s.begun {
		return nil
	}
	var b strings.Builder
	b.WriteByte('\n')
	result.Wrap(&b, fmt.Sprintf(s.o.measure.explain, s.o.control))
	if !s.ruled {
		result.Wrap(&b, fmt.Sprintf("There are no ratios, since %s was not measured: name another path by --control.", s.o.control))
	}
	if len(s.noisy) > 0 {
		result.Wrap(&b, fmt.Sprintf("Noisy (!): %s: %s. Something else used the machine: "+
			"repeat it when that is quiet, or with more or longer runs.", result.NoiseText(), strings.Join(s.noisy, ", ")))
	}
	return s.write(b.String())
}

func (s *tableSink) columns() []column {
	width := 9
	for _, k := range s.o.paths {
		width = max(width, len(k.Name))
	}
	spread := column{"spread", 7, func(r result.Row) string {
		if r.Noisy {
			return display.Percent(r.Spread) + "!"
		}
		return display.Percent(r.Spread) + " "
	}}
	ratio := column{"ratio", 6, func(r result.Row) string { return result.Optional(r.Ratio) }}
	columns := []column{
		{"bytes", 8, func(r result.Row) string { return strconv.Itoa(r.Size) }},
		{"path", -width, func(r result.Row) string { return r.Path }},
		{"MTU", 6, func(r result.Row) string {
			if r.MTU == 0 {
				return "-"
			}
			return strconv.Itoa(r.MTU)
		}},
		{s.o.measure.unit, 8, func(r result.Row) string { return display.Figure(r.Median) }},
	}
	quantile := func(title string, of func(result.Row) *float64) column {
		return column{title, 8, func(r result.Row) string { return result.Optional(of(r)) }}
	}
	if !s.o.measure.latency {
		columns = append(columns,
			column{"min", 8, func(r result.Row) string { return display.Figure(r.Min) }},
			column{"max", 8, func(r result.Row) string { return display.Figure(r.Max) }}, spread, ratio)
		if s.o.measure.name == "cpu" {
			return append(columns, column{"CPUs", 6, func(r result.Row) string { return display.Figure(r.CPULoad) }})
		}
		return append(columns, quantile("CPU s/GB", func(r result.Row) *float64 { return r.CPUPerGB }))
	}
	columns = append(columns, spread, ratio)
	if s.o.rest > 0 {
		columns = append(columns, quantile("p25", func(r result.Row) *float64 { return r.P25 }),
			quantile("p75", func(r result.Row) *float64 { return r.P75 }))
	}
	if !s.o.measure.half {
		columns = append(columns, quantile("p50", func(r result.Row) *float64 { return r.P50 }))
	} else {
		columns = append(columns, quantile("p90", func(r result.Row) *float64 { return r.P90 }))
	}
	return append(columns,
		quantile("p99", func(r result.Row) *float64 { return r.P99 }),
		quantile("p99.9", func(r result.Row) *float64 { return r.P999 }),
		quantile("max", func(r result.Row) *float64 { return r.P100 }))
}

func (s *tableSink) write(text string) error {
	if _, err := io.WriteString(s.w, text); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// line writes a line of the table.
func (s *tableSink) line(b *strings.Builder, text func(column) string) {
	var cells []string
	for _, c := range s.columns() {
		cells = append(cells, fmt.Sprintf("%*s", c.width, text(c)))
	}
	b.WriteString(strings.TrimRight(strings.Join(cells, "  "), " "))
	b.WriteByte('\n')
}

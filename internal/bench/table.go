package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"exnet/internal/bench/coredist"
	"exnet/internal/bench/result"
	"exnet/internal/bench/tcpbench"
)

// explain says what the columns are; %s is the control.
var explain = map[string]string{
	"stream": "Gbit/s is what the receiving program got, the median of the runs, and ratio is that over %s's: " +
		"above 1 is faster; CPU s/GB is the CPU time of all processes of the path for a gigabyte.",
	"pingpong": "us is half a round trip in microseconds, the median of the runs' medians, and ratio is that over %s's: " +
		"below 1 is faster; p90 to max are over all round trips of all runs.",
	"crr": "conn/s is how many connections were made, used for one request and closed in a second, the median of the runs, " +
		"and ratio is that over %s's: above 1 is faster; p50 to max are the microseconds of one, over all runs.",
	"rate": "Mmsg/s is how many million messages the receiving program got in a second, the median of the runs, and ratio is " +
		"that over %s's: above 1 is faster; CPU s/GB is the CPU time of all processes of the path for a gigabyte.",
	"cpu": "s/GB is the CPU time of all processes of the path for a gigabyte, user and system, the median of the runs, and ratio " +
		"is that over %s's: below 1 is cheaper; CPUs is how many were busy.",
}

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
	cores string   // of the last row
	noisy []string // figures that should not be believed
}

// head writes what comes before the first row.
func (s *tableSink) head(b *strings.Builder, d coredist.Distance) {
	s.begun = true
	o := s.o
	what := o.measure.title + " " + result.Count(o.streams, "connection")
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
		what, o.congestion, result.Count(o.runs, "run"), o.duration, o.warmup, where))
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
		if r.Noisy {
			s.noisy = append(s.noisy, fmt.Sprintf("%s at %s (%s)", r.Path, result.Count(r.Size, "byte"), result.Percent(r.Spread)))
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
	result.Wrap(&b, fmt.Sprintf(explain[s.o.measure.name], s.o.control))
	if len(s.noisy) > 0 {
		result.Wrap(&b, fmt.Sprintf("Noisy (!): the runs lie more than %s apart: %s. Something else used the machine: "+
			"repeat it when that is quiet, or with more or longer runs.", result.Percent(result.NoiseBound), strings.Join(s.noisy, ", ")))
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
			return result.Percent(r.Spread) + "!"
		}
		return result.Percent(r.Spread) + " "
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
		{s.o.measure.unit, 8, func(r result.Row) string { return result.Figure(r.Median) }},
	}
	quantile := func(title string, of func(result.Row) *float64) column {
		return column{title, 8, func(r result.Row) string { return result.Optional(of(r)) }}
	}
	if !s.o.measure.latency {
		columns = append(columns,
			column{"min", 8, func(r result.Row) string { return result.Figure(r.Min) }},
			column{"max", 8, func(r result.Row) string { return result.Figure(r.Max) }}, spread, ratio)
		if s.o.measure.name == "cpu" {
			return append(columns, column{"CPUs", 6, func(r result.Row) string { return result.Figure(r.CPULoad) }})
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

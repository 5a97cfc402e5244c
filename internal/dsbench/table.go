package dsbench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"exnet/internal/dsbench/coredist"
	"exnet/internal/tcpbench"
)

// tableWidth is the number of columns that all text for people keeps to.
const tableWidth = 100

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
	cell  func(row) string
}

// tableSink writes a table for people, size by size as they are measured.
type tableSink struct {
	w     io.Writer
	o     options
	m     machine
	begun bool
	cores string   // of the last row
	noisy []string // figures that should not be believed
}

// head writes what comes before the first row.
func (s *tableSink) head(b *strings.Builder, d coredist.Distance) {
	s.begun = true
	o := s.o
	what := o.measure.title + " " + count(o.streams, "connection")
	if o.reverse {
		what += ", the server sends"
	}
	if o.noDelay {
		what += ", TCP_NODELAY"
	}
	where := "the scheduler places both ends"
	if o.cpus != tcpbench.Anywhere() {
		where = fmt.Sprintf("client on CPU %d, server on CPU %d", o.cpus.Client, o.cpus.Server)
	}
	wrap(b, fmt.Sprintf("%s, %s, %s of %v each, interleaved, after %v of warm-up; %s.",
		what, o.congestion, count(o.runs, "run"), o.duration, o.warmup, where))
	wrap(b, s.m.String()+".")
	wrap(b, "CPUs "+d.String()+".")
	b.WriteByte('\n')
	s.line(b, func(c column) string { return c.title })
}

func (s *tableSink) rows(rows []row) error {
	var b strings.Builder
	for _, r := range rows {
		if !s.begun {
			s.head(&b, r.Distance)
			s.cores = r.Cores
		}
		if r.Cores != s.cores {
			s.cores = r.Cores
			wrap(&b, "CPUs now "+r.Distance.String()+".")
		}
		s.line(&b, func(c column) string { return c.cell(r) })
		if r.Noisy {
			s.noisy = append(s.noisy, fmt.Sprintf("%s at %s (%s)", r.Path, count(r.Size, "byte"), percent(r.Spread)))
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
	wrap(&b, fmt.Sprintf(explain[s.o.measure.name], s.o.control))
	if len(s.noisy) > 0 {
		wrap(&b, fmt.Sprintf("Noisy (!): the runs lie more than %s apart: %s. Something else used the machine: "+
			"repeat it when that is quiet, or with more or longer runs.", percent(noiseBound), strings.Join(s.noisy, ", ")))
	}
	return s.write(b.String())
}

func (s *tableSink) columns() []column {
	width := 9
	for _, k := range s.o.paths {
		width = max(width, len(k.Name))
	}
	spread := column{"spread", 7, func(r row) string {
		if r.Noisy {
			return percent(r.Spread) + "!"
		}
		return percent(r.Spread) + " "
	}}
	ratio := column{"ratio", 6, func(r row) string { return optional(r.Ratio) }}
	columns := []column{
		{"bytes", 8, func(r row) string { return strconv.Itoa(r.Size) }},
		{"path", -width, func(r row) string { return r.Path }},
		{"MTU", 6, func(r row) string {
			if r.MTU == 0 {
				return "-"
			}
			return strconv.Itoa(r.MTU)
		}},
		{s.o.measure.unit, 8, func(r row) string { return figure(r.Median) }},
	}
	quantile := func(title string, of func(row) *float64) column {
		return column{title, 8, func(r row) string { return optional(of(r)) }}
	}
	if !s.o.measure.latency {
		columns = append(columns,
			column{"min", 8, func(r row) string { return figure(r.Min) }},
			column{"max", 8, func(r row) string { return figure(r.Max) }}, spread, ratio)
		if s.o.measure.name == "cpu" {
			return append(columns, column{"CPUs", 6, func(r row) string { return figure(r.CPULoad) }})
		}
		return append(columns, quantile("CPU s/GB", func(r row) *float64 { return r.CPUPerGB }))
	}
	columns = append(columns, spread, ratio)
	if !s.o.measure.half {
		columns = append(columns, quantile("p50", func(r row) *float64 { return r.P50 }))
	} else {
		columns = append(columns, quantile("p90", func(r row) *float64 { return r.P90 }))
	}
	return append(columns,
		quantile("p99", func(r row) *float64 { return r.P99 }),
		quantile("p99.9", func(r row) *float64 { return r.P999 }),
		quantile("max", func(r row) *float64 { return r.P100 }))
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

// figure writes a number with three digits, or all before the point.
func figure(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return figure(*v)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// wrap writes text in lines of at most tableWidth columns.
func wrap(b *strings.Builder, text string) {
	width := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case width == 0:
		case width+1+n > tableWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	b.WriteByte('\n')
}

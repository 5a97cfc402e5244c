package bench

import (
	"fmt"
	"io"
	"strings"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/tcpbench"
)

// printer writes rows, size by size as they are measured: a table for people, or lines of JSON.
type printer struct {
	w     io.Writer
	o     options
	m     result.Machine
	n     int // rows
	table result.Table
	begun bool
	ruled bool     // the control has a row
	cores string   // of the last row
	noisy []string // figures that should not be believed
}

// writeHead writes what comes before the first row.
func (s *printer) writeHead(b *strings.Builder, d coredist.Distance) {
	s.begun = true
	o := s.o
	what := o.measure.title + " " + display.Count(o.streams, "connection")
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
	s.table = result.NewTable("  ", s.tableColumns()...)
	s.table.Head(b)
}

func (s *printer) printRows(rows []result.Row) error {
	s.n += len(rows)
	var b strings.Builder
	if s.o.json {
		_ = result.WriteLines(&b, rows) // a builder takes all
		return s.writeText(b.String())
	}
	for _, r := range rows {
		if !s.begun {
			s.writeHead(&b, r.Distance)
			s.cores = r.Cores
		}
		if r.Cores != s.cores {
			s.cores = r.Cores
			result.Wrap(&b, "CPUs now "+r.Distance.String()+".")
		}
		s.table.Rows(&b, r)
		s.ruled = s.ruled || r.Path == s.o.control
		if r.Noisy {
			s.noisy = append(s.noisy, fmt.Sprintf("%s at %s (%s)", r.Path, display.Count(r.Size, "byte"), display.Percent(r.Spread)))
		}
	}
	return s.writeText(b.String())
}

func (s *printer) finishTable() error {
	if !s.begun {
		return nil
	}
	var b strings.Builder
	b.WriteByte('\n')
	result.Wrap(&b, fmt.Sprintf("%s; times is how many times as good as %s in the same round, the median: above 1 is better.",
		s.o.measure.explain, s.o.control))
	if !s.ruled {
		result.Wrap(&b, fmt.Sprintf("There are no ratios, since %s was not measured: name another path by --control.", s.o.control))
	}
	if len(s.noisy) > 0 {
		result.Wrap(&b, fmt.Sprintf("Noisy (!): %s: %s. Something else used the machine: "+
			"repeat it when that is quiet, or with more or longer runs.", result.NoiseText(), strings.Join(s.noisy, ", ")))
	}
	return s.writeText(b.String())
}

// tableColumns are those of the measure, as result.NewTable takes them.
func (s *printer) tableColumns() []string {
	width := 9
	for _, k := range s.o.paths {
		width = max(width, len(k.Name))
	}
	m := s.o.measure
	columns := []string{"bytes 8", fmt.Sprintf("path -%d", width), "MTU 6", m.unit + "=median 8"}
	switch {
	case m.name == "cpu":
		return append(columns, "min 8", "max 8", "spread 7", "times 6", "CPUs 6")
	case !m.latency:
		return append(columns, "min 8", "max 8", "spread 7", "times 6", "CPU s/GB 8")
	}
	columns = append(columns, "spread 7", "times 6")
	if s.o.rest > 0 {
		columns = append(columns, "p25 8", "p75 8")
	}
	if m.half {
		columns = append(columns, "p90 8")
	} else {
		columns = append(columns, "p50 8")
	}
	return append(columns, "p99 8", "p99.9 8", "max=longest 8")
}

func (s *printer) writeText(text string) error {
	if _, err := io.WriteString(s.w, text); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

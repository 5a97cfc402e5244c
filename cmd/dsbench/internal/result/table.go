package result

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"exnet/internal/display"
)

// cells are the columns that tables have: what each shows of a row.
var cells = map[string]func(Row) string{
	"measure":  func(r Row) string { return r.Measure },
	"path":     func(r Row) string { return r.Path },
	"bytes":    func(r Row) string { return strconv.Itoa(r.Size) },
	"streams":  func(r Row) string { return strconv.Itoa(r.Streams) },
	"median":   func(r Row) string { return display.Figure(r.Median) },
	"unit":     func(r Row) string { return r.Unit },
	"min":      func(r Row) string { return display.Figure(r.Min) },
	"max":      func(r Row) string { return display.Figure(r.Max) },
	"times":    func(r Row) string { return cmp.Or(r.times.Short(), "-") },
	"CPUs":     func(r Row) string { return display.Figure(r.CPULoad) },
	"CPU s/GB": func(r Row) string { return Optional(r.CPUPerGB) },
	"CPU us":   func(r Row) string { return Optional(r.CPUPerRequest) },
	"p25":      func(r Row) string { return Optional(r.P25) },
	"p75":      func(r Row) string { return Optional(r.P75) },
	"p50":      func(r Row) string { return Optional(r.P50) },
	"p90":      func(r Row) string { return Optional(r.P90) },
	"p99":      func(r Row) string { return Optional(r.P99) },
	"p99.9":    func(r Row) string { return Optional(r.P999) },
	"longest":  func(r Row) string { return Optional(r.P100) },
	"sent":     func(r Row) string { return r.datagramCount(func(d *Datagrams) uint64 { return d.Sent }) },
	"received": func(r Row) string { return r.datagramCount(func(d *Datagrams) uint64 { return d.Received }) },
	"lost":     func(r Row) string { return r.datagramCount(func(d *Datagrams) uint64 { return d.Lost }) },
	"late":     func(r Row) string { return r.datagramCount(func(d *Datagrams) uint64 { return d.Late }) },
	"MTU": func(r Row) string {
		if r.MTU == 0 {
			return "-"
		}
		return strconv.Itoa(r.MTU)
	},
	"spread": func(r Row) string {
		if r.Noisy {
			return display.Percent(r.Spread) + "!"
		}
		return display.Percent(r.Spread) + " "
	},
}

// datagramCount is a number of datagrams, "" where none were sent one way.
func (r Row) datagramCount(of func(*Datagrams) uint64) string {
	if r.Datagrams == nil || r.Sent == 0 {
		return ""
	}
	return strconv.FormatUint(of(r.Datagrams), 10)
}

// Table is a table for people.
type Table struct {
	gap     string // between columns
	columns []column
}

type column struct {
	title string
	width int // negative: left-aligned
	cell  func(Row) string
}

// NewTable returns the table of some columns, with gap between them. Each is a word of cells and a
// width, as in "path -8", negative if it is left-aligned; or has another title, as in "us=median
// 8".
func NewTable(gap string, columns ...string) Table {
	t := Table{gap: gap}
	for _, text := range columns {
		i := strings.LastIndexByte(text, ' ')
		title, name, named := strings.Cut(text[:i], "=")
		if !named {
			name = title
		}
		width, err := strconv.Atoi(text[i+1:])
		if cells[name] == nil || err != nil {
			panic("a table has no column " + text)
		}
		t.columns = append(t.columns, column{title, width, cells[name]})
	}
	return t
}

// Head writes the titles.
func (t Table) Head(b *strings.Builder) {
	t.writeLine(b, func(c column) string { return c.title })
}

// Rows writes a line for each row.
func (t Table) Rows(b *strings.Builder, rows ...Row) {
	for _, r := range rows {
		t.writeLine(b, func(c column) string { return c.cell(r) })
	}
}

func (t Table) writeLine(b *strings.Builder, text func(column) string) {
	var words []string
	for _, c := range t.columns {
		words = append(words, fmt.Sprintf("%*s", c.width, text(c)))
	}
	b.WriteString(strings.TrimRight(strings.Join(words, t.gap), " ") + "\n")
}

// Begin writes what was measured and where, and the titles.
func (t Table) Begin(b *strings.Builder, what string, m Machine) {
	Wrap(b, what)
	Wrap(b, m.String()+".")
	b.WriteByte('\n')
	t.Head(b)
}

// Print writes rows: a line of JSON each, or a table below what was measured and where, with a note
// below it unless that is "".
func Print(w io.Writer, json bool, rows []Row, t Table, what string, m Machine, note string) error {
	if json {
		return WriteLines(w, rows)
	}
	var b strings.Builder
	t.Begin(&b, what, m)
	t.Rows(&b, rows...)
	if note != "" {
		b.WriteByte('\n')
		Wrap(&b, note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// TableWidth is the number of columns that all text for people keeps to.
const TableWidth = 100

// Optional writes a number as in a column; "-" for none.
func Optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return display.Figure(*v)
}

// Wrap writes text in lines of at most TableWidth columns.
func Wrap(b *strings.Builder, text string) {
	for _, line := range display.Wrap(text, TableWidth) {
		b.WriteString(line + "\n")
	}
}

// LastLine returns the last line of a program's output that says something: why it has failed.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/infile"
)

// Version counts the forms of a report's JSON.
const Version = 1

// Data is all that a report says, and the form of its JSON.
type Data struct {
	Version  int               `json:"dsbench_report"`
	Machine  result.Machine    `json:"machine"`
	Distance coredist.Distance `json:"distance"` // at the beginning
	Took     float64           `json:"took_s"`
	Quick    bool              `json:"quick,omitempty"`
	Runs     int               `json:"runs"`
	Duration float64           `json:"duration_s"`
	Warmup   float64           `json:"warmup_s"`
	TCP      string            `json:"congestion"`
	Busy     float64           `json:"busy_before"`       // CPUs that others used just before
	Partial  string            `json:"partial,omitempty"` // why it is not complete
	Skipped  []Skipped         `json:"skipped,omitempty"`
	Parts    []Part            `json:"parts"`
}

// Skipped is a path that could not be measured.
type Skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Skip notes that a path could not be measured.
func (d *Data) Skip(path, why string) {
	d.Skipped = append(d.Skipped, Skipped{path, strings.ReplaceAll(why, "\n", "; ")})
}

// Part is one series of interleaved measurements.
type Part struct {
	ID   string       `json:"id"`
	Rows []result.Row `json:"rows"`
	Note string       `json:"note,omitempty"` // what went wrong
}

// rowsOfPart returns the rows of a part, nil if it was not measured.
func (d *Data) rowsOfPart(id string) []result.Row {
	for _, p := range d.Parts {
		if p.ID == id {
			return p.Rows
		}
	}
	return nil
}

// rowOf returns a path's row at a size, nil if it was not measured.
func (d *Data) rowOf(part, path string, size int) *result.Row {
	return result.Find(d.rowsOfPart(part), func(r result.Row) bool { return r.Path == path && r.Size == size })
}

// goNet measures connections by Go's package net, and nothing else.
const goNet = "net"

// goControls are the controls of the connections of direct sockets, which are Go's here.
var goControls = map[string]string{"ds": goNet, "ds-exn": "net-exn"}

// controlOf returns what a row of a part is compared with, everywhere: the path that it names, or
// for connections of Go that of Go. nil: it was not measured.
func (d *Data) controlOf(part string, r *result.Row) *result.Row {
	name := r.Control
	if other := goControls[r.Path]; part == PartCRR && other != "" {
		name = other
	}
	return result.Find(d.rowsOfPart(part), func(c result.Row) bool { return c.Path == name && c.Size == r.Size && c.Measure == r.Measure })
}

// timesControl says how many times as good as its control a row of a part is. Either may be nil.
func (d *Data) timesControl(part string, r *result.Row) result.Times {
	if r == nil {
		return result.Times{}
	}
	control := d.controlOf(part, r)
	if control == nil {
		return result.Times{}
	}
	values := func(r *result.Row) []float64 {
		if len(r.Values) == 0 {
			return []float64{r.Median}
		}
		return r.Values
	}
	return result.TimesOf(r.Unit, values(r), values(control))
}

// countNoisy counts the figures that should not be believed, and all.
func (d *Data) countNoisy() (n, of int) {
	for _, p := range d.Parts {
		for _, r := range p.Rows {
			of++
			if r.Noisy {
				n++
			}
		}
	}
	return n, of
}

// coreDistance says how far the CPUs were from each other, all the time.
func (d *Data) coreDistance() string {
	seen := map[string]bool{}
	for _, p := range d.Parts {
		for _, r := range p.Rows {
			seen[r.Cores] = true
		}
	}
	if seen[coredist.Near] && seen[coredist.Far] {
		return "near at times and far at others"
	}
	return d.Distance.Cores
}

func (d *Data) startTime() time.Time {
	t, _ := time.Parse(time.RFC3339, d.Machine.Date) // of our own making; else the zero time
	return t
}

// Read reads a report's JSON, of at most infile.Max bytes, which gzip may have compressed.
func Read(path string) (*Data, error) {
	text, err := infile.Read(path)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) { // RFC 1952, section 2.3.1
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err == nil {
			text, err = io.ReadAll(io.LimitReader(z, infile.Max+1))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: damaged: %w", path, err)
		}
		if len(text) > infile.Max {
			return nil, fmt.Errorf("%s: longer than %d MiB when decompressed", path, infile.Max>>20)
		}
	}
	d, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// ErrNoReport says that a file is something else.
var ErrNoReport = errors.New("no report of dsbench report")

func Decode(text []byte) (*Data, error) {
	var d Data
	if err := json.Unmarshal(text, &d); err != nil || d.Version == 0 {
		return nil, ErrNoReport
	}
	if d.Version != Version {
		return nil, fmt.Errorf("a report of version %d; this dsbench knows %d", d.Version, Version)
	}
	for _, p := range d.Parts {
		for i := range p.Rows {
			p.Rows[i].Path, p.Rows[i].Control = paths.CurrentName(p.Rows[i].Path), paths.CurrentName(p.Rows[i].Control)
		}
	}
	return &d, nil
}

// Parts of a report.
const (
	PartStream1  = "stream, one connection"  // figure 5.26a
	PartStream2  = "stream, two connections" // figure 5.26b
	PartCPUs     = "tuning: CPUs"            // figure 5.27a
	PartDSCPUs   = "tuning: CPUs of direct sockets"
	PartMTU      = "tuning: MTU" // figure 5.27b, and what else can be set
	PartBuffers  = "tuning: socket buffers"
	PartCoalesce = "tuning: coalescing"
	PartEager    = "tuning: eager threshold"
	PartLatency  = "half round trip" // figure 5.28
	PartIdle     = "half round trip after a rest"
	PartCPU      = "CPU time"           // figure 5.29
	PartOSULat   = "latency to 512 KiB" // figure 5.30
	PartOSUBW    = "bandwidth of all"   // figure 5.31
	PartRate     = "message rate"       // figure 5.32
	PartCRR      = "connections"        // not in the thesis
	PartPrograms = "programs"           // nor this
)

// mpi is an MPI: as dsbench mpi calls it, and in words. Its parts (figures 5.30 to 5.32) begin with
// the name.
type mpi struct{ name, text string }

var mpis = []mpi{{"openmpi", "Open MPI"}, {"mpich", "MPICH"}}

// AddMPI takes in the rows of dsbench mpi, a part for each measure.
func (d *Data) AddMPI(rows []result.Row) {
	for _, r := range rows {
		i := slices.IndexFunc(d.Parts, func(p Part) bool { return p.ID == r.Measure })
		if i < 0 {
			i = len(d.Parts)
			d.Parts = append(d.Parts, Part{ID: r.Measure})
		}
		d.Parts[i].Rows = append(d.Parts[i].Rows, r)
	}
}

// settingsText says with which settings the rows of a part were measured, from the rows: ""
// if there are none.
func (p Part) settingsText() string {
	if len(p.Rows) == 0 {
		return ""
	}
	var congestion, runs, times, cores []string
	add := func(list *[]string, text string) {
		if text != "" && !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for _, r := range p.Rows {
		if r.Congestion != "" && r.MTU != 0 { // the NIC by itself has neither
			add(&congestion, "TCP "+r.Congestion)
		}
		add(&runs, display.Count(r.Runs, "run"))
		span := spanText(r.Duration)
		if r.Rest > 0 {
			span += ", " + spanText(r.Rest) + " of rest before each message"
		}
		add(&times, span)
		add(&cores, r.Cores)
	}
	parts := []string{strings.Join(runs, " or ") + " of " + strings.Join(times, " or ")}
	if len(congestion) > 0 {
		parts = append(parts, strings.Join(congestion, ", "))
	}
	if len(cores) > 0 {
		parts = append(parts, "cores "+strings.Join(cores, " and "))
	}
	return fmt.Sprintf("%s: %s", p.ID, strings.Join(parts, ", "))
}

// spanText writes seconds for people: "200ms", "1s".
func spanText(s float64) string { return display.Duration(time.Duration(s * float64(time.Second))) }

package dsbench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"exnet/internal/dsbench/coredist"
)

// reportVersion counts the forms of a report's JSON.
const reportVersion = 1

// reportData is all that a report says, and the form of its JSON.
type reportData struct {
	Version  int               `json:"dsbench_report"`
	Machine  machine           `json:"machine"`
	Distance coredist.Distance `json:"distance"` // at the beginning
	Took     float64           `json:"took_s"`
	Quick    bool              `json:"quick,omitempty"`
	Runs     int               `json:"runs"`
	Duration float64           `json:"duration_s"`
	Warmup   float64           `json:"warmup_s"`
	TCP      string            `json:"congestion"`
	Busy     float64           `json:"busy_before"`       // CPUs that others used just before
	Partial  string            `json:"partial,omitempty"` // why it is not complete
	Skipped  []skipped         `json:"skipped,omitempty"`
	Parts    []reportPart      `json:"parts"`
}

// skipped is a path that could not be measured.
type skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// reportPart is one series of interleaved measurements.
type reportPart struct {
	ID   string `json:"id"`
	Rows []row  `json:"rows"`
	Note string `json:"note,omitempty"` // what went wrong
}

// part returns the rows of a part, nil if it was not measured.
func (d *reportData) part(id string) []row {
	for _, p := range d.Parts {
		if p.ID == id {
			return p.Rows
		}
	}
	return nil
}

// row returns a path's row at a size, nil if it was not measured.
func (d *reportData) row(part, path string, size int) *row {
	rows := d.part(part)
	i := slices.IndexFunc(rows, func(r row) bool { return r.Path == path && r.Size == size })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// noisy lists what should not be believed.
func (d *reportData) noisy() (list []string, of int) {
	for _, p := range d.Parts {
		for _, r := range p.Rows {
			of++
			if r.Noisy {
				list = append(list, fmt.Sprintf("%s of %s at %s (%s)", r.Measure, r.Path, count(r.Size, "byte"), percent(r.Spread)))
			}
		}
	}
	return list, of
}

// cores says how far the CPUs were from each other, all the time.
func (d *reportData) cores() string {
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

func (d *reportData) started() time.Time {
	t, _ := time.Parse(time.RFC3339, d.Machine.Date) // of our own making; else the zero time
	return t
}

// readRows reads the rows of a file: a report's JSON, or lines of --json.
func readRows(path string) ([]row, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d, err := decodeReport(text)
	if err == nil {
		var rows []row
		for _, p := range d.Parts {
			rows = append(rows, p.Rows...)
		}
		return rows, nil
	}
	var rows []row
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var r row
		if json.Unmarshal([]byte(line), &r) != nil || r.Measure == "" || r.Path == "" {
			return nil, fmt.Errorf("%s is neither a report's JSON nor lines of --json", path)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no results", path)
	}
	return rows, nil
}

// errNoReport says that a file is something else.
var errNoReport = errors.New("not a report's JSON")

func decodeReport(text []byte) (*reportData, error) {
	var d reportData
	if err := json.Unmarshal(text, &d); err != nil || d.Version == 0 {
		return nil, errNoReport
	}
	if d.Version != reportVersion {
		return nil, fmt.Errorf("a report of version %d; this dsbench knows %d", d.Version, reportVersion)
	}
	return &d, nil
}

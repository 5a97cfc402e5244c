package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/svgplot"
	"exnet/napi"
)

// Tuned is what was found.
type Tuned struct {
	Machine  result.Machine
	Distance coredist.Distance
	Runs     int
	Steps    []TunedStep
	Eager    int
	Coalesce napi.Coalesce
	Chunk    int
	Spin     time.Duration
	Skipped  []string
}

// TunedStep is a step with its figures and the reason for the choice.
type TunedStep struct {
	Name, Why string
	Rows      map[string][]result.Row // by measure
}

func SpinName(d time.Duration) string {
	if d < 0 {
		return "none"
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

// Config is the configuration for exn-tun.
func (t *Tuned) Config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Found by dsbench tune on %s.\n# %s.\n", t.Machine.Date, t.Machine)
	fmt.Fprintf(&b, "# CPUs %s.\n# For exn-tun up --config; add fabric, addresses and what else the node needs.\n\n", t.Distance)
	for _, s := range t.Skipped {
		fmt.Fprintf(&b, "# Not measured: %s\n", s)
	}
	if t.Eager > 0 {
		fmt.Fprintf(&b, "eager_threshold = %d\n", t.Eager)
	}
	if t.step("coalescing") != nil {
		fmt.Fprintf(&b, "\n[receive]\nmode = \"napi\"\ncoalesce_usecs = %d\ncoalesce_frames = %d\nadaptive = %v\n",
			t.Coalesce.Delay.Microseconds(), t.Coalesce.Frames, t.Coalesce.Adaptive)
	}
	if t.Chunk > 0 || t.Spin != 0 {
		b.WriteString("\n# Direct sockets are configured by the programs: directsockets.Config{")
		var fields []string
		if t.Chunk > 0 {
			fields = append(fields, fmt.Sprintf("Chunk: %d << 10", t.Chunk>>10))
		}
		switch {
		case t.Spin < 0:
			fields = append(fields, "Spin: -1")
		case t.Spin > 0:
			fields = append(fields, fmt.Sprintf("Spin: %d * time.Microsecond", t.Spin.Microseconds()))
		}
		b.WriteString(strings.Join(fields, ", ") + "}\n")
	}
	return b.String()
}

func (t *Tuned) step(name string) *TunedStep {
	for i := range t.Steps {
		if t.Steps[i].Name == name {
			return &t.Steps[i]
		}
	}
	return nil
}

// chosen is the value that was chosen in a step.
func (t *Tuned) chosen(name string) string {
	switch name {
	case "eager threshold":
		return fmt.Sprintf("%d bytes", t.Eager)
	case "coalescing":
		return paths.CoalesceString(t.Coalesce)
	case "chunk":
		return fmt.Sprintf("%d KiB", t.Chunk>>10)
	}
	return SpinName(t.Spin)
}

// figures are the curves behind the choices.
func (t *Tuned) figures() (list []reportFigure) {
	for _, s := range t.Steps {
		f := reportFigure{ID: strings.ReplaceAll(s.Name, " ", "-"), Says: s.Why,
			Title: fmt.Sprintf("%s%s: %s", strings.ToUpper(s.Name[:1]), s.Name[1:], t.chosen(s.Name))}
		d := Data{}
		for _, m := range []string{"pingpong", "stream"} {
			rows := s.Rows[m]
			if len(rows) == 0 {
				continue
			}
			d.Parts = append(d.Parts, Part{ID: m, Rows: rows})
			switch {
			case s.Name == "eager threshold":
				l := svgplot.Lines{
					Title: "Half a round trip over message size",
					X:     svgplot.Axis{Label: "message size (bytes)", Log: true, Format: display.Size},
					Y:     svgplot.Axis{Label: "half round trip (" + micros + ")"}, Series: d.series(m, scaled(1)),
				}
				for i := range l.Series {
					l.Series[i].Colour = i
				}
				f.Charts = append(f.Charts, chart{l.Title, template.HTML(l.SVG())})
			case m == "stream":
				f.Charts = append(f.Charts, d.bars(m, fmt.Sprintf("Stream of %s", display.Size(float64(rows[0].Size))), gbits, false, scaled(1)))
				if s.Name == "coalescing" {
					f.Charts = append(f.Charts, d.bars(m, "CPU time for a gigabyte", "s", false, func(r result.Row) (float64, float64, float64) {
						return *cmp.Or(r.CPUPerGB, new(float64)), 0, 0
					}))
				}
			default:
				f.Charts = append(f.Charts, d.bars(m, "Half a round trip of 64 bytes", micros, false, scaled(1)))
			}
		}
		list = append(list, f)
	}
	return list
}

// Page shows the curves, in the frame of the report.
func (t *Tuned) Page() ([]byte, error) {
	v := reportView{
		Data: &Data{Machine: t.Machine, Distance: t.Distance}, Title: "exnet: what suits this machine",
		About: []string{t.Machine.String(), "CPUs " + t.Distance.String(), display.Count(t.Runs, "run") + " of each value"},
		Warn:  t.Skipped, Figures: t.figures(), Config: t.Config(),
	}
	v.When = v.started().Format("2 January 2006, 15:04 MST")
	var b bytes.Buffer
	err := reportPage.Execute(&b, v)
	return b.Bytes(), err
}

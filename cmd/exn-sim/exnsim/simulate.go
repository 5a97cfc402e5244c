package exnsim

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	"exnet/fabric/graph"
	"exnet/fabric/routing"
	"exnet/fabric/topo"
	"exnet/internal/display"
	"exnet/internal/outfile"
	"exnet/study"
)

// outcome is a run with what came of it.
type outcome struct {
	Number   int         `json:"run"`
	Varied   []string    `json:"varied"`
	Network  string      `json:"network"`
	Router   string      `json:"router"`
	Stats    study.Stats `json:"load"`
	Busiest  string      `json:"busiest"`
	Makespan float64     `json:"makespan"` // seconds
	Wait     float64     `json:"wait"`     // seconds, mean
	Bytes    uint64      `json:"bytes"`    // between hosts
	Flows    int         `json:"flows"`
	Idle     bool        `json:"idle"` // after all jobs every load is 0
	// Imbalance is the imbalance factor of the writers of the last job that writes; 0: none does.
	Imbalance float64 `json:"imbalance,omitempty"`

	label string
	dir   string // relative to that of the page
	drawn bool
	draw  func(peak float64) error // draws the loads, on a scale up to peak; nil: too large
	peak  float64                  // the largest load, in bytes a unit of capacity
}

func runScenario(path, dir string, paths bool, stdout, stderr io.Writer) error {
	s, err := study.ReadScenario(path)
	if err != nil {
		return err
	}
	runs := s.Runs()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var all []outcome
	for _, r := range runs {
		if len(runs) > 1 {
			fmt.Fprintf(stderr, "run %d of %d: %s\n", r.Number, len(runs), r.Label())
		}
		o, err := runOnce(r, dir, paths)
		if err != nil {
			return fmt.Errorf("run %d (%s): %w", r.Number, r.Label(), err)
		}
		all = append(all, *o)
	}
	if err := drawLoads(all); err != nil {
		return err
	}
	if err := writeComparison(dir, filepath.Base(path), all); err != nil {
		return err
	}
	return printTable(stdout, all)
}

// drawLoads draws the loads of all runs on one scale, so that the same load looks the same in each.
func drawLoads(all []outcome) (err error) {
	peak := 0.0
	for _, o := range all {
		if o.draw != nil {
			peak = max(peak, o.peak)
		}
	}
	for _, o := range all {
		if o.draw != nil {
			err = errors.Join(err, o.draw(peak))
		}
	}
	return err
}

// runOnce does one run, and writes its files.
func runOnce(r study.Setting, dir string, paths bool) (o *outcome, err error) {
	c, err := r.Prepare()
	if err != nil {
		return nil, err
	}
	o = &outcome{
		Number: r.Number, Varied: r.Varied, Network: c.Graph.Name(), Router: c.Router,
		label: r.Label(), dir: fmt.Sprintf("run-%03d", r.Number), drawn: len(c.Graph.Vertices()) <= topo.MaxDrawn,
	}
	own := filepath.Join(dir, o.dir)
	if err := os.MkdirAll(own, 0o777); err != nil {
		return nil, err
	}
	if paths {
		w, err := outfile.Create(filepath.Join(own, "paths.csv"))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.Discard()) }()
		b := bufio.NewWriter(w)
		fmt.Fprintln(b, "job,bytes,path")
		c.OnPath = func(job int, f routing.Flow, path []int32) { writePath(b, c.Graph, job, f, path) }
		defer func() {
			if err == nil {
				err = errors.Join(b.Flush(), w.Commit())
			}
		}()
	}
	result, err := study.Simulate(c)
	if err != nil {
		return nil, err
	}
	o.fillSummary(c.Graph, result)
	return o, o.writeFiles(own, c.Graph, result)
}

// writePath writes a line: the vertices that a flow visits, by their names.
func writePath(w io.Writer, g *graph.Graph, job int, f routing.Flow, path []int32) {
	fmt.Fprintf(w, "%d,%d,%s", job+1, f.Bytes, g.Vertices()[f.From].Name)
	for _, c := range path {
		fmt.Fprintf(w, " %s", g.Vertices()[g.Channels()[c].To].Name)
	}
	fmt.Fprintln(w)
}

func (o *outcome) fillSummary(g *graph.Graph, r *study.Result) {
	o.Stats = r.Stats()
	if o.Stats.Max > 0 {
		o.Busiest = g.ChannelName(o.Stats.Busiest)
	}
	o.Makespan, o.Wait, o.Idle = r.Makespan().Seconds(), r.Wait().Seconds(), r.Load.Idle()
	for _, j := range r.Records {
		o.Bytes += j.Bytes
		o.Flows += j.Flows
		if j.Imbalance > 0 {
			o.Imbalance = j.Imbalance
		}
	}
}

// writeFiles writes the files of a run.
func (o *outcome) writeFiles(dir string, g *graph.Graph, r *study.Result) error {
	err := errors.Join(
		outfile.Write(filepath.Join(dir, "links.csv"), func(w io.Writer) error { return writeLinks(w, g, r.Load) }),
		outfile.Write(filepath.Join(dir, "jobs.csv"), func(w io.Writer) error { return writeJobs(w, g, r) }),
		outfile.Write(filepath.Join(dir, "network.graphml"), func(w io.Writer) error {
			return g.WriteGraphML(w,
				graph.Attribute{Name: "load", Value: func(c int32) uint64 { return r.Load.Peak[c] }},
				graph.Attribute{Name: "total", Value: func(c int32) uint64 { return r.Load.Total[c] }},
				graph.Attribute{Name: "flows", Value: func(c int32) uint64 { return r.Load.Count[c] }})
		}))
	if o.drawn {
		for i, c := range g.Channels() {
			o.peak = max(o.peak, float64(r.Load.Peak[i])/c.Capacity)
		}
		o.draw = func(peak float64) error {
			return outfile.Write(filepath.Join(dir, "load.svg"), func(w io.Writer) error { return g.WriteSVG(w, r.Load.Peak, r.Load.Count, peak) })
		}
	}
	return err
}

func writeLinks(w io.Writer, g *graph.Graph, l *routing.Load) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"from", "to", "capacity", "load", "relative", "total", "flows"}) // Error has it
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for i, ch := range g.Channels() {
		v := g.Vertices()
		_ = c.Write([]string{
			v[ch.From].Name, v[ch.To].Name, strconv.FormatFloat(ch.Capacity, 'g', -1, 64), number(l.Peak[i]),
			strconv.FormatFloat(float64(l.Peak[i])/ch.Capacity, 'f', -1, 64), number(l.Total[i]), number(l.Count[i]),
		})
	}
	c.Flush()
	return c.Error()
}

func writeJobs(w io.Writer, g *graph.Graph, r *study.Result) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"job", "name", "submit", "start", "end", "hosts", "first_host", "flows", "bytes", "imbalance"})
	for i, j := range r.Records {
		number := func(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) }
		_ = c.Write([]string{
			strconv.Itoa(i + 1), j.Name, number(j.Submit.Seconds()), number(j.Start.Seconds()), number(j.End.Seconds()),
			strconv.Itoa(len(j.Hosts)), g.Vertices()[j.Hosts[0]].Name, strconv.Itoa(j.Flows), strconv.FormatUint(j.Bytes, 10), number(j.Imbalance),
		})
	}
	c.Flush()
	return c.Error()
}

// writeComparison writes what is about all runs.
func writeComparison(dir, scenario string, all []outcome) error {
	return errors.Join(
		outfile.Write(filepath.Join(dir, "runs.json"), func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(all)
		}),
		outfile.Write(filepath.Join(dir, "runs.csv"), func(w io.Writer) error { return runsCSV(w, all) }),
		outfile.Write(filepath.Join(dir, "index.html"), func(w io.Writer) error { return writePage(w, scenario, all) }))
}

func runsCSV(w io.Writer, all []outcome) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"run", "what", "network", "router", "max_load", "relative_to_run_1", "mean_load", "std_dev", "max_flows", "busiest", "makespan", "mean_wait", "imbalance"})
	for _, o := range all {
		f := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
		_ = c.Write([]string{
			strconv.Itoa(o.Number), o.label, o.Network, o.Router, strconv.FormatUint(o.Stats.Max, 10), f(relativeLoad(all, o)), f(o.Stats.Mean),
			f(o.Stats.StdDev), strconv.FormatUint(o.Stats.MaxFlows, 10), o.Busiest, f(o.Makespan), f(o.Wait), f(o.Imbalance),
		})
	}
	c.Flush()
	return c.Error()
}

// relativeLoad is the largest load in proportion to that of the first run.
func relativeLoad(all []outcome, o outcome) float64 {
	if all[0].Stats.Max == 0 {
		return 0
	}
	return float64(o.Stats.Max) / float64(all[0].Stats.Max)
}

func printTable(w io.Writer, all []outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	writes := slices.ContainsFunc(all, func(o outcome) bool { return o.Imbalance > 0 })
	head, end := "run\twhat\tlargest load\trelative to run 1\tmost flows\tbusiest link\tmakespan", "\n"
	if writes {
		head += "\timbalance factor"
	}
	fmt.Fprint(t, head, end)
	for _, o := range all {
		if writes {
			end = fmt.Sprintf("\t%.2f\n", o.Imbalance)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%.4f\t%d\t%s\t%gs%s", o.Number, o.label, display.Bytes(o.Stats.Max), relativeLoad(all, o), o.Stats.MaxFlows, o.Busiest, o.Makespan, end)
	}
	return t.Flush()
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/report"
	"exnet/cmd/dsbench/internal/result"
	"exnet/exteth"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/netns"
	"exnet/internal/outfile"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
	"exnet/napi"

	"github.com/spf13/cobra"
)

// What is chosen, if the best is not far away: what takes less of something else.
const (
	tuneSlack = 0.05 // of bandwidth and latency
	tunePrice = 0.10 // of latency, for less CPU time
)

// tuneStep finds one setting.
type tuneStep struct {
	name    string
	measure string
	sizes   []int
	paths   []paths.Kind // one for each value that is tried
	cpus    tcpbench.Placement
}

// candidates of each setting.
var (
	tuneCoalesce = []napi.Coalesce{
		{}, {Frames: 8, Delay: 20 * time.Microsecond}, {Frames: 16, Delay: 50 * time.Microsecond},
		{Frames: 32, Delay: 100 * time.Microsecond}, {Adaptive: true},
	}
	tuneChunks = []int{8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10}
	tuneSpins  = []time.Duration{-1, 5 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond}
	tuneEagers = []int{128, 256, 400, 512, 768, 1024, 1536, 2048, 3072}
)

// Where the defaults of directsockets.Config are among those.
const (
	usualChunk = 3
	usualSpin  = 3
)

// frameOverhead is what a message of the kernel's TCP has around it in a frame: 14
// of Ethernet, 20 of IPv4, 32 of TCP with time stamps.
const frameOverhead = 14 + 20 + 32

// minEager is the least threshold: what fits one VELO message. eagerMax is a threshold above all
// sizes that are tried.
const (
	minEager = 120
	eagerMax = 4096
)

// tuneSteps returns what is measured.
func tuneSteps() []tuneStep {
	exn := func(name string, set func(*paths.NodeConfig)) paths.Kind {
		k, _ := paths.KindOf("exn") // it is there
		open := k.Open
		k.Name = name
		k.Open = func(c paths.NodeConfig) paths.Path { set(&c); return open(c) }
		return k
	}
	ds := func(name string, set func(*tcpbench.Spec)) paths.Kind {
		k, _ := paths.KindOf("ds")
		open := k.Open
		k.Name = name
		k.Open = func(c paths.NodeConfig) paths.Path { return paths.WithSpec(open(c), set) }
		return k
	}
	eager := tuneStep{name: "eager threshold", measure: "pingpong", sizes: tuneEagers, cpus: tcpbench.Apart(), paths: []paths.Kind{
		exn("VELO messages", func(c *paths.NodeConfig) { c.EagerThreshold = eagerMax }),
		exn("RMA transfer", func(c *paths.NodeConfig) { c.EagerThreshold = minEager }),
	}}
	var modes []paths.Kind
	for _, c := range tuneCoalesce {
		modes = append(modes, exn(paths.CoalesceString(c), func(n *paths.NodeConfig) { n.Coalesce = c }))
	}
	chunk := tuneStep{name: "chunk", measure: "stream", sizes: []int{1 << 20}, cpus: tcpbench.Apart()}
	for _, n := range tuneChunks {
		chunk.paths = append(chunk.paths, ds(fmt.Sprintf("%d KiB", n>>10), func(s *tcpbench.Spec) { s.Chunk = n }))
	}
	spin := tuneStep{name: "spin time", measure: "pingpong", sizes: []int{64}, cpus: tcpbench.Apart()}
	for _, d := range tuneSpins {
		spin.paths = append(spin.paths, ds(report.SpinName(d), func(s *tcpbench.Spec) { s.Spin = d }))
	}
	return []tuneStep{
		eager,
		{name: "coalescing", measure: "pingpong", sizes: []int{64}, cpus: tcpbench.Apart(), paths: modes},
		{name: "coalescing", measure: "stream", sizes: []int{64 << 10}, cpus: tcpbench.Anywhere(), paths: modes},
		chunk, spin,
	}
}

const quickTune = 80 * time.Millisecond

func newTune() *cobra.Command {
	t := new(longRun) // data is the configuration
	c := &cobra.Command{
		Use: "tune [flags]", Short: "find settings that suit this machine, and write a configuration",
		Long: `Finds the eager threshold and the coalescing of exn0, and the chunk and spin time
of direct sockets, that suit this machine. Writes them as a configuration that
exn-tun up --config takes, and a page with the curves behind the choice beside it.
Takes about two minutes.`,
		Example: `dsbench tune
    writes dsbench-tune.toml and dsbench-tune.html
dsbench tune --quick --force -o lab.toml
    in half a minute, replacing files that exist`,
		Args: func(c *cobra.Command, args []string) error {
			if err := command.NoArgs(c, args); err != nil {
				return err
			}
			return usageError(t.check(quickTune, ".toml", ".html"))
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return runTune(c.Context(), t, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	t.define(c.Flags(), quickTune, "dsbench-tune.toml", "the configuration, .toml; the page goes beside it")
	return c
}

// runTune does dsbench tune.
func runTune(ctx context.Context, t *longRun, stdout, stderr io.Writer) error {
	if err := t.checkFiles(""); err != nil {
		return err
	}
	if !netns.Privileged() {
		if status, err := netns.ReexecInUserNS(); err == nil {
			return cli.ExitStatus(status)
		}
	}
	tuned, err := takeTune(ctx, t.runs, t.duration, t.congestion, stderr)
	if err != nil {
		return err
	}
	page, err := tuned.Page()
	if err == nil {
		err = outfile.WriteText(t.html, page)
	}
	if err == nil {
		err = outfile.WriteText(t.data, []byte(tuned.Config()))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n%s and %s\n", tuned.Config(), t.data, t.html)
	return nil
}

// takeTune measures and chooses.
func takeTune(ctx context.Context, runs int, duration time.Duration, congestion string, stderr io.Writer) (*report.Tuned, error) {
	t := &report.Tuned{Machine: result.ThisMachine(time.Now()), Distance: distance(), Runs: runs}
	warmup := duration / 3
	steps := tuneSteps()
	p := newProgress(stderr, 0, duration+warmup+perRun)
	all := make([]options, len(steps))
	for i, s := range steps {
		m, _ := measureOf(s.measure)
		all[i] = options{
			measure: m, paths: s.paths, control: s.paths[0].Name, sizes: s.sizes, streams: 1, runs: runs,
			duration: duration, warmup: warmup, congestion: congestion, cpus: s.cpus,
		}
		p.total += all[i].measurements()
	}
	for i, s := range steps {
		var rows collector
		err := runAll(ctx, all[i], t.Machine, &rows, p)
		p.clear()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted after %d of %d measurements: nothing is written", p.done, p.total)
		}
		if err != nil {
			t.Skipped = append(t.Skipped, s.name+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		j := slices.IndexFunc(t.Steps, func(x report.TunedStep) bool { return x.Name == s.name })
		if j < 0 {
			j = len(t.Steps)
			t.Steps = append(t.Steps, report.TunedStep{Name: s.name, Rows: map[string][]result.Row{}})
		}
		t.Steps[j].Rows[s.measure] = rows
	}
	if len(t.Steps) == 0 {
		return nil, errors.New(strings.Join(t.Skipped, "; "))
	}
	for i := range t.Steps {
		choose(t, &t.Steps[i])
	}
	return t, nil
}

// choose makes the choice of a step, and says why.
func choose(t *report.Tuned, s *report.TunedStep) {
	switch s.Name {
	case "eager threshold":
		t.Eager, s.Why = chooseEager(s.Rows["pingpong"])
	case "coalescing":
		t.Coalesce, s.Why = chooseCoalesce(s.Rows["pingpong"], s.Rows["stream"])
	case "chunk":
		i, why := chooseFirst(s.Rows["stream"], false, tuneSlack, usualChunk)
		t.Chunk, s.Why = tuneChunks[i], why
	case "spin time":
		i, why := chooseFirst(s.Rows["pingpong"], true, tunePrice, usualSpin)
		t.Spin, s.Why = tuneSpins[i], why
	}
}

// chooseEager finds the largest frame up to which VELO is faster. It leaves the default only for
// what is beyond the noise: upwards where VELO is faster, downwards where it is slower.
func chooseEager(rows []result.Row) (int, string) {
	at := func(path string, size int) (r result.Row) {
		i := slices.IndexFunc(rows, func(r result.Row) bool { return r.Path == path && r.Size == size })
		if i >= 0 {
			r = rows[i]
		}
		return r
	}
	best, faster, slower := 0, 0, 0
	for _, size := range tuneEagers {
		velo, rma := at("VELO messages", size), at("RMA transfer", size)
		d := stats.Differ(rma.Values, velo.Values, tuneSlack)
		if d.Beyond && d.Ratio > 1 {
			slower = size
			break
		}
		if best = size; d.Beyond {
			faster = size
		}
	}
	switch {
	case slower > 0 && best == 0:
		return minEager, fmt.Sprintf("An RMA transfer is faster already at %d bytes, the smallest size that was tried: only what fits one VELO message goes there.", slower)
	case slower > 0 && best+frameOverhead < exteth.DefaultEagerThreshold:
		return best + frameOverhead, fmt.Sprintf("An RMA transfer is faster (by %s, beyond the noise) from %d bytes on, with %d of headers.",
			display.Percent(tuneSlack), slower, frameOverhead)
	case faster+frameOverhead > exteth.DefaultEagerThreshold:
		return faster + frameOverhead, fmt.Sprintf("VELO messages are faster than an RMA transfer (by %s, beyond the noise) up to %d bytes, with %d of headers.",
			display.Percent(tuneSlack), faster, frameOverhead)
	}
	return exteth.DefaultEagerThreshold, "Beyond the default VELO messages are not faster, and below it they are not slower, beyond the noise: the default."
}

// chooseCoalesce finds the way that takes the least CPU time for a gigabyte, of
// those that are close to the best in latency and bandwidth.
func chooseCoalesce(latency, stream []result.Row) (napi.Coalesce, string) {
	if len(latency) != len(tuneCoalesce) || len(stream) != len(tuneCoalesce) {
		return napi.Coalesce{}, "Not all was measured: off."
	}
	fastest, widest := math.Inf(1), 0.0
	for i := range tuneCoalesce {
		fastest, widest = min(fastest, latency[i].Median), max(widest, stream[i].Median)
	}
	best := -1
	for i := range tuneCoalesce {
		if latency[i].Median > fastest*(1+tunePrice) || stream[i].Median < widest*(1-tuneSlack) {
			continue
		}
		if best < 0 || *stream[i].CPUPerGB < *stream[best].CPUPerGB*(1-tuneSlack) {
			best = i
		}
	}
	if best < 0 {
		return napi.Coalesce{}, "Nothing is close to the best in both latency and bandwidth: off."
	}
	if best > 0 && (stream[0].Noisy || stream[best].Noisy) {
		return napi.Coalesce{}, "The runs lie too far apart to tell: off, which is the default."
	}
	return tuneCoalesce[best], fmt.Sprintf("The least CPU time for a gigabyte (%s s) of those within %s of the shortest half round trip and %s of the largest bandwidth.",
		result.Optional(stream[best].CPUPerGB), display.Percent(tunePrice), display.Percent(tuneSlack))
}

// chooseFirst finds the first value, the smallest, that is close to the best; usual
// is the default's place, which stays unless the other is better beyond the noise.
func chooseFirst(rows []result.Row, lower bool, slack float64, usual int) (int, string) {
	best := rows[0].Median
	for _, r := range rows {
		if lower {
			best = min(best, r.Median)
		} else {
			best = max(best, r.Median)
		}
	}
	i := slices.IndexFunc(rows, func(r result.Row) bool {
		if lower {
			return r.Median <= best*(1+slack)
		}
		return r.Median >= best*(1-slack)
	})
	d := stats.Differ(rows[usual].Values, rows[i].Values, slack)
	if !d.Beyond || (d.Ratio > 1) == lower {
		return usual, "No value is better than the default beyond the noise."
	}
	return i, fmt.Sprintf("The smallest value within %s of the best (%s %s), and better than the default beyond the noise.",
		display.Percent(slack), display.Figure(best), rows[0].Unit)
}

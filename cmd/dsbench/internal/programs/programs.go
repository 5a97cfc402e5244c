package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/netns"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
)

// Paths of "dsbench programs".
const (
	pathTCP    = "tcp"
	pathUDP    = "udp" // of programs that speak UDP
	pathDirect = "direct"
)

// Measure returns the command "dsbench programs".
func Measure() measure.Measure {
	return measure.Measure{
		Name: "programs", About: "measure real programs, with exn-run and without",
		Long: `Measures real programs over loopback, as they are (path tcp, or udp) and under
exn-run --loopback (path direct), in interleaved runs against two servers. A run in which
no connection of the client was direct fails.

With --network bridge, each program is in a network namespace of its own on a
bridge that is made for it: without exn-tun agent (path tcp), and with it and
exn-run (path direct). The agent is started for each direct run and ended after
it. There is the CPU time of a request, too: of all programs of the path and of
the agent. A run in which less than 90 % of the bytes were direct fails, but for
connections of one request.

Measures:
` + listMeasures(),
		Examples: `dsbench programs
    all that are installed, 5 runs of 2 seconds on each path
dsbench programs --only iperf3,sockperf --runs 10 --json
    two of them, as JSON
dsbench programs --network bridge
    what can be between namespaces, without the agent and with it`,
		Values: map[string]cobra.CompletionFunc{"only": command.ListOf(pairNames()...),
			"network": command.ListOf(networkLoopback, networkBridge)},
		Define: func(fs *pflag.FlagSet) measure.Run { return Define(fs) },
	}
}

// Options is what the command line of "dsbench programs" asks for.
type Options struct {
	list     string   // of --only
	only     []string // measures; empty: all that can be
	duration time.Duration
	runs     int
	exnRun   string
	cpus     tcpbench.Placement
	json     bool
	direct   bool // only the path "direct"
	network  string
	exnTun   string // path of exn-tun, for networkBridge
}

// Networks between the programs: --network.
const (
	networkLoopback = "loopback"
	networkBridge   = "bridge"
)

// listMeasures lists the measures, a line each, for the help text.
func listMeasures() string {
	var lines []string
	for _, p := range allPairs() {
		about := p.about
		if p.named {
			about += " (if --only names it)"
		}
		lines = append(lines, fmt.Sprintf("  %-22s %s", p.Name, about))
	}
	return strings.Join(lines, "\n")
}

// Define defines the flags of "dsbench programs" and returns what they will say.
func Define(fs *pflag.FlagSet) *Options {
	o := &Options{duration: 2 * time.Second, runs: 5, network: networkLoopback}
	fs.StringVar(&o.list, "only", "", "`LIST` measures to take (all whose programs are installed)")
	cli.Duration(fs, &o.duration, "duration", time.Second, measure.MaxDuration, "`TIME` of a run, whole seconds (2s)")
	cli.Number(fs, &o.runs, "runs", 1, measure.MaxRuns, "`N` runs of each path, after one that is not counted (5)")
	fs.StringVar(&o.exnRun, "exn-run", "", "`PATH` exn-run (beside dsbench, or in PATH)")
	fs.StringVar(&o.network, "network", o.network, "`NETWORK` between the programs: loopback, or bridge, with exn-tun agent and without (loopback)")
	fs.BoolVar(&o.direct, "direct-only", false, "leave out the path tcp, to compare builds")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *Options) Check() (err error) {
	o.cpus = tcpbench.Apart()
	if o.only, err = measure.Choose("--only", "measure", o.list, pairNames()); err != nil {
		return err
	}
	if o.duration%time.Second != 0 {
		return errors.New("--duration: use whole seconds, as the programs do")
	}
	bridge := o.network == networkBridge
	if !bridge && o.network != networkLoopback {
		return fmt.Errorf("--network: use %s or %s", networkLoopback, networkBridge)
	}
	for _, p := range allPairs() {
		if bridge && slices.Contains(o.only, p.Name) && !p.bridged {
			return fmt.Errorf("--only: %s is measured over loopback only", p.Name)
		}
	}
	if o.exnRun, err = measure.Command("exn-run", o.exnRun); err != nil || !bridge {
		return err
	}
	return o.checkBridge()
}

// checkBridge says what --network bridge lacks.
func (o *Options) checkBridge() error {
	if !netns.Privileged() {
		return errors.New("--network bridge takes root: it makes namespaces and starts exn-tun agent")
	}
	o.exnTun = filepath.Join(filepath.Dir(o.exnRun), "exn-tun")
	if _, err := os.Stat(o.exnTun); err != nil {
		return fmt.Errorf("--network bridge wants exn-tun beside exn-run: %w", err)
	}
	return nil
}

// chosenPairs are the measures that the options name, or all that suit the network.
func (o *Options) chosenPairs() []Pair {
	bridge := o.network == networkBridge
	return slices.DeleteFunc(allPairs(), func(p Pair) bool {
		if len(o.only) > 0 {
			return !slices.Contains(o.only, p.Name)
		}
		return bridge && !p.bridged || !bridge && p.named
	})
}

// Pairs are the measures that are taken if none is named.
func Pairs() []Pair { return new(Options).chosenPairs() }

// pairNames returns those of the measures.
func pairNames() []string {
	var names []string
	for _, p := range allPairs() {
		names = append(names, p.Name)
	}
	return names
}

// Take measures what the options ask for, prints it, and says what is left out.
func (o *Options) Take(ctx context.Context, env measure.Env) error {
	m, d := result.ThisMachine(time.Now()), env.Distance()
	table, what := o.chooseTable(d)
	write := func(fill func(*strings.Builder)) error { // the table, as it is measured
		var b strings.Builder
		fill(&b)
		_, err := io.WriteString(env.Stdout, b.String())
		return err
	}
	if !o.json {
		if err := write(func(b *strings.Builder) { table.Begin(b, what, m) }); err != nil {
			return err
		}
	}
	measured := 0
	for _, p := range o.chosenPairs() {
		if missing := p.Missing(); missing != "" {
			fmt.Fprintf(env.Stderr, "dsbench programs: %s is left out: %s\n", p.Name, missing)
			continue
		}
		rows, err := p.Measure(ctx, *o, m, d)
		if err == nil {
			measured++
			if o.json {
				err = result.WriteLines(env.Stdout, rows)
			} else {
				err = write(func(b *strings.Builder) { table.Rows(b, rows...) })
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if measured == 0 {
		return errors.New("none of the programs is installed")
	}
	return nil
}

// Measure runs the client alternately on both paths, against a server on each.
func (p Pair) Measure(ctx context.Context, o Options, m result.Machine, d coredist.Distance) ([]result.Row, error) {
	samples, at, err := p.takeSamples(ctx, o)
	if err != nil {
		return nil, err
	}
	return p.makeRows(o, m, d.At(at), samples), nil
}

// sample is what one run of a client said.
type sample struct {
	value    float64
	p50, p99 float64 // microseconds; 0: it does not say
	cpu      float64 // of all programs and of the agent, microseconds a request; 0: not measured
}

// takeSamples takes the samples, by the place of the path, at one distance of the CPUs.
func (p Pair) takeSamples(ctx context.Context, o Options) (samples map[int][]sample, at coredist.Distance, err error) {
	dir, err := tempdir.New("dsbench-programs")
	if err != nil {
		return samples, at, err
	}
	defer func() { err = errors.Join(err, tempdir.Remove(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // servers may be other users'
		return samples, at, err
	}
	if p.oneCPU {
		o.cpus.Server = o.cpus.Client
	}
	// It builds its library: a server that waits for that would count as hanging.
	if err := measure.Prepare(ctx, o.exnRun); err != nil {
		return samples, at, err
	}
	var b *bridge
	if o.network == networkBridge {
		if b, err = newBridge(ctx); err != nil {
			return samples, at, err
		}
		defer func() { err = errors.Join(err, b.close()) }()
	}
	var ends [2]*end
	for i := range ends {
		if o.direct && i == 0 {
			continue
		}
		e := &end{o: o, p: p, direct: i == 1, dir: filepath.Join(dir, []string{pathTCP, pathDirect}[i]), cpus: o.cpus, bridge: b}
		if b != nil {
			e.group = b.groups[i]
		}
		defer func() { err = errors.Join(err, e.stopServers()) }()
		if err := e.startServer(ctx); err != nil {
			return samples, at, err
		}
		ends[i] = e
	}
	turn := func(int) (map[int]sample, error) {
		taken := make(map[int]sample)
		for i, e := range ends {
			if e == nil {
				continue
			}
			s, err := e.takeTurn(ctx)
			if err != nil {
				return nil, err
			}
			taken[i] = s
		}
		return taken, nil
	}
	if _, err := turn(0); err != nil { // it warms up, and shows that it works
		return samples, at, err
	}
	return coredist.Rounds(o.runs, measure.Distance, turn)
}

// makeRows makes the rows of a measure, in the form of every other one.
func (p Pair) makeRows(o Options, m result.Machine, d coredist.Distance, samples map[int][]sample) []result.Row {
	var rows []result.Row
	var first []float64 // values of the control
	paths := [2]string{pathTCP, pathDirect}
	if p.udp {
		paths[0] = pathUDP
	}
	control := paths[0]
	if o.direct {
		control = pathDirect
	}
	for i, path := range paths {
		if o.direct && i == 0 {
			continue
		}
		r := result.Row{
			Measure: p.Name, Path: path, Size: p.size, Streams: p.streams, Unit: p.unit, Control: control,
			Duration: o.duration.Seconds(), Distance: d, MTU: loopbackMTU, Placement: tcpbench.Anywhere().String(), Machine: m,
			Congestion: tcpbench.SystemCongestion(),
		}
		if p.bound {
			cpus := o.cpus
			if p.oneCPU {
				cpus.Server = cpus.Client
			}
			r.Placement = cpus.String()
		}
		if o.network == networkBridge {
			r.MTU = bridgeMTU
		}
		var values, p50, p99, cpu []float64
		for _, s := range samples[i] {
			values = append(values, s.value)
			if s.cpu > 0 {
				cpu = append(cpu, s.cpu)
			}
			if s.p99 > 0 {
				p50, p99 = append(p50, s.p50), append(p99, s.p99)
			}
		}
		if rows == nil {
			first = values
		}
		r.Take(values, first)
		if len(p99) > 0 {
			r.P50, r.P99 = result.Rounded(stats.Summarize(p50).Median), result.Rounded(stats.Summarize(p99).Median)
		}
		if len(cpu) > 0 {
			r.CPUPerRequest = result.Rounded(stats.Summarize(cpu).Median)
		}
		rows = append(rows, r)
	}
	return rows
}

// MTUs of the networks.
const (
	loopbackMTU = 65536
	bridgeMTU   = 1500
)

// Tables of the figures; between namespaces with latencies and CPU times in place of the range.
var (
	loopbackTable = result.NewTable(" ", "measure -22", "path -7", "median 10", "=unit -7", "min 10", "max 10", "spread 7", "times 6", "p99 us=p99 9")
	bridgeTable   = result.NewTable(" ", "measure -16", "path -7", "median 10", "=unit -7", "spread 7", "times 6", "p50 us=p50 9", "p99 us=p99 9", "CPU us 9")
)

// chooseTable returns the one of the options, and what it shows.
func (o Options) chooseTable(d coredist.Distance) (t result.Table, what string) {
	t, what = loopbackTable, "Programs over loopback, with exn-run (direct) and without (tcp, udp)"
	if o.network == networkBridge {
		t, what = bridgeTable, "Programs in namespaces on a bridge, with exn-tun agent (direct) and without (tcp)"
	}
	return t, fmt.Sprintf("%s, %s of %v each, interleaved; %v.", what, display.Count(o.runs, "run"), o.duration, d)
}

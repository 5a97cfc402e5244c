package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/cli"
	"exnet/internal/tcpbench"
	"exnet/mtu"

	"github.com/spf13/pflag"
)

const (
	maxStreams  = 256
	maxRuns     = measure.MaxRuns
	maxDuration = measure.MaxDuration
	maxRest     = 10 * time.Second
)

// options is what the command line asks for.
type options struct {
	measure      pathMeasure
	paths        []paths.Kind
	control      string
	controlAdded bool // the control was not among the paths
	named        bool // the user has named the paths
	sizes        []int
	streams      int
	duration     time.Duration
	warmup       time.Duration
	runs         int
	congestion   string
	anyTCP       bool // the user has not named the congestion control
	cpus         tcpbench.Placement
	node         paths.NodeConfig
	noDelay      bool
	rest         time.Duration // before each message
	json         bool

	// tolerate is told that a path fails, which is then left out. nil: the first
	// failure ends all.
	tolerate func(path string, err error)
}

func (o options) specOf(size int) tcpbench.Spec {
	return tcpbench.Spec{
		Kind: o.measure.kind, Size: size, Streams: o.streams, NoDelay: o.noDelay, Rest: o.rest,
		Duration: o.duration, Warmup: o.warmup, Congestion: o.congestion, CPUs: o.cpus,
	}
}

// countMeasurements returns how many there are to take, if the CPUs stay where they are.
func (o options) countMeasurements() int { return o.runs * len(o.sizes) * len(o.paths) }

// measureFlags are the flags of a measure, as they are written.
type measureFlags struct {
	o  options
	fs *pflag.FlagSet

	names, size, cpus string
}

// newMeasureFlags defines the flags of a measure.
func newMeasureFlags(m pathMeasure, fs *pflag.FlagSet) *measureFlags {
	f := &measureFlags{o: options{measure: m, duration: time.Second, warmup: 300 * time.Millisecond, runs: 5, streams: 1}, fs: fs, size: m.size, cpus: m.cpus}
	o := &f.o
	fs.StringVar(&f.names, "paths", "", "`LIST` paths to measure ("+defaultPaths(m)+")")
	fs.StringVar(&o.control, "control", "", "`PATH` path that the others are compared with; added to the paths if it is not among them (veth; lo without veth and exn)")
	fs.StringVar(&f.size, "size", f.size, "`LIST` bytes of a message; k and m for 2^10 and 2^20 ("+m.size+")")
	cli.Duration(fs, &o.duration, "duration", time.Millisecond, maxDuration, "`TIME` measured time of a run (1s)")
	cli.Duration(fs, &o.warmup, "warmup", 0, maxDuration, "`TIME` time before that, not measured (300ms)")
	cli.Number(fs, &o.runs, "runs", 1, maxRuns, "`N` runs of each path and size; 3 or more show noise (5)")
	if m.streams {
		cli.Number(fs, &o.streams, "streams", 1, maxStreams, "`N` connections, or clients, at once (1)")
	}
	if m.kind == tcpbench.PingPong {
		cli.Duration(fs, &o.rest, "rest", 0, maxRest, "`TIME` rest before each message, so that all that waits for it sleeps (0s)")
	}
	if m.kind == tcpbench.Stream {
		fs.BoolVar(&o.noDelay, "no-delay", false, "TCP_NODELAY: every message leaves at once")
	}
	fs.StringVar(&o.congestion, "congestion", "cubic", "`NAME` TCP congestion control on every path (cubic)")
	fs.StringVar(&f.cpus, "cpus", f.cpus, "`WHERE` CPUs of the end that connects and the one that listens: any (the scheduler's choice), apart or different (two), same (one), or two numbers as in 0,1 ("+m.cpus+")")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	cli.Group(fs, "exn0", f.defineExn0)
	return f
}

func (f *measureFlags) defineExn0(fs *pflag.FlagSet) {
	n := &f.o.node
	fs.Func("mtu", "`BYTES` its MTU (65535)", func(s string) error {
		v, err := cli.ParseSize(s, int(mtu.MinIPv6), int(mtu.Default))
		n.MTU = mtu.Network(v)
		return err
	})
	fs.BoolVar(&n.NoFastPath, "no-fast-path", false, "every packet through netstack")
}

// readOptions returns what the flags ask for, or says what is wrong with them.
func (f *measureFlags) readOptions() (options, error) {
	o := f.o
	names := f.names
	o.anyTCP = !f.fs.Changed("congestion")
	if o.named = f.fs.Changed("paths"); !o.named {
		names = defaultPaths(o.measure)
	}
	for _, check := range []struct {
		flag string
		err  error
	}{
		{"--paths", o.setPaths(names)},
		{"--control", o.setControl()},
		{"--size", o.setSizes(f.size)},
		{"--congestion", o.checkCongestion()},
		{"--cpus", o.setCPUs(f.cpus)},
		{"--mtu", o.needsExn0(o.node.MTU != 0)},
		{"--no-fast-path", o.needsExn0(o.node.NoFastPath)},
	} {
		if check.err != nil {
			return o, fmt.Errorf("%s: %w", check.flag, check.err)
		}
	}
	return o, nil
}

// usageError says that the arguments are wrong, unless err is nil.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return cli.UsageError{Err: err}
}

func (o *options) setPaths(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		kind, err := paths.KindOf(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		if o.hasPath(kind.Name) {
			return fmt.Errorf("%s is named twice", kind.Name)
		}
		if slices.Contains(kind.Lacks, o.measure.kind) {
			return fmt.Errorf("%s cannot be asked for %s", kind.Name, o.measure.name)
		}
		o.paths = append(o.paths, kind)
	}
	return nil
}

// defaultPaths are those that take the measure.
func defaultPaths(m pathMeasure) string {
	var names []string
	for _, k := range paths.Kinds() {
		if !k.Extra && !slices.Contains(k.Lacks, m.kind) {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, ",")
}

func (o *options) hasPath(name string) bool {
	return slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return k.Name == name })
}

// setControl chooses the control if none is named: veth, which does what exn0
// does, unless no path needs the privileges that veth does. A figure without a
// control in the same run says little, so it is added to the paths.
func (o *options) setControl() error {
	if o.control == "" {
		o.control = "lo"
		if slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return k.Privileged }) {
			o.control = "veth"
		}
	}
	kind, err := paths.KindOf(o.control)
	if err != nil {
		return err
	}
	if !o.hasPath(kind.Name) {
		o.paths = append([]paths.Kind{kind}, o.paths...)
		o.controlAdded = true
	}
	return nil
}

// setSizes reads "1,64,128k".
func (o *options) setSizes(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		n, err := cli.ParseSize(text, 1, paths.MaxSize)
		if err != nil {
			return err
		}
		o.sizes = append(o.sizes, n)
	}
	return nil
}

// setCPUs reads "any", "apart" or "different", "same", or "CLIENT,SERVER".
func (o *options) setCPUs(text string) error {
	switch text {
	case "any":
		o.cpus = tcpbench.Anywhere()
		return nil
	case "apart", "different":
		o.cpus = tcpbench.Apart()
		return nil
	case "same":
		o.cpus = tcpbench.Together()
		return nil
	}
	var err error
	o.cpus, err = measure.CPUs(text, "any, apart, same, or ")
	return err
}

// needsExn0 refuses a setting of exn0 that is set without a path that has it.
func (o *options) needsExn0(set bool) error {
	if set && !slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return k.Exn0 }) {
		return errors.New("only exn0 has it: add exn or exn-shm to --paths")
	}
	return nil
}

// checkCongestion refuses what cannot be the name of a congestion control: the
// kernel would cut it (TCP_CA_NAME_MAX is 16, with the final zero).
func (o *options) checkCongestion() error {
	name := o.congestion
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "\x00/ ") {
		return errors.New("name one of sysctl net.ipv4.tcp_available_congestion_control")
	}
	return nil
}

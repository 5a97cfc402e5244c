package dsbench

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/internal/dsbench/paths"
	"exnet/internal/dsbench/result"
	"exnet/internal/tcpbench"
	"exnet/mtu"
	"exnet/napi"
)

const (
	maxStreams  = 256
	maxRuns     = 1000
	maxDuration = time.Hour
)

// options is what the command line asks for.
type options struct {
	measure      measure
	paths        []paths.Kind
	control      string
	controlAdded bool // the control was not among the paths
	sizes        []int
	streams      int
	duration     time.Duration
	warmup       time.Duration
	runs         int
	congestion   string
	cpus         tcpbench.Placement
	node         paths.NodeConfig
	buffers      int // bytes of a socket's
	direct       tcpbench.DirectSpec
	reverse      bool // the end that listens sends
	noDelay      bool
	json         bool

	// find finds a path by its name.
	find func(name string) (paths.Kind, error)

	// tolerate is told that a path fails, which is then left out. nil: the first
	// failure ends all.
	tolerate func(path string, err error)
}

func (o options) spec(size int) tcpbench.Spec {
	return tcpbench.Spec{
		Kind: o.measure.kind, Size: size, Streams: o.streams, Reverse: o.reverse, NoDelay: o.noDelay,
		Duration: o.duration, Warmup: o.warmup, Congestion: o.congestion, Buffers: o.buffers, CPUs: o.cpus,
		DirectSpec: o.direct,
	}
}

// measurements returns how many there are to take.
func (o options) measurements() int {
	n := 0
	for _, size := range o.sizes {
		for _, k := range o.paths {
			if k.Takes(o.measure.kind, size) {
				n += o.runs
			}
		}
	}
	return n
}

// parseOptions reads the arguments behind the measure's name. The error is
// flag.ErrHelp if they ask for help, and else says what is wrong with them.
func parseOptions(m measure, args []string) (options, error) {
	o := options{measure: m, streams: 1}
	size, cpus, direction, coalesce := m.size, m.cpus, "out", "off"
	var buffers, connect, chunk, ring string
	fs := flag.NewFlagSet(m.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if m.streams {
		fs.IntVar(&o.streams, "streams", 1, "")
	}
	if m.oneWay() {
		fs.StringVar(&direction, "direction", "out", "")
	}
	if m.kind == tcpbench.Stream {
		fs.BoolVar(&o.noDelay, "no-delay", false, "")
	}
	var names string
	fs.StringVar(&names, "paths", "", "")
	fs.StringVar(&connect, "connect", "", "")
	fs.StringVar(&o.control, "control", "", "")
	fs.StringVar(&size, "size", size, "")
	fs.DurationVar(&o.duration, "duration", time.Second, "")
	fs.DurationVar(&o.warmup, "warmup", 300*time.Millisecond, "")
	fs.IntVar(&o.runs, "runs", 5, "")
	fs.StringVar(&o.congestion, "congestion", "cubic", "")
	fs.StringVar(&cpus, "cpus", cpus, "")
	fs.StringVar(&buffers, "buffers", "", "")
	fs.Var(&o.node.MTU, "mtu", "")
	fs.IntVar(&o.node.EagerThreshold, "eager-threshold", 0, "")
	fs.Var(&o.node.Mode, "rx-mode", "")
	fs.StringVar(&coalesce, "coalesce", coalesce, "")
	fs.BoolVar(&o.node.NoFastPath, "no-fast-path", false, "")
	fs.StringVar(&chunk, "chunk", "", "")
	fs.StringVar(&ring, "ring", "", "")
	fs.DurationVar(&o.direct.Spin, "spin", 0, "")
	fs.BoolVar(&o.json, "json", false, "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.find = paths.KindOf
	if connect != "" {
		o.find = func(name string) (paths.Kind, error) { return paths.RemoteKindOf(paths.RemoteAddr(connect), name) }
	}
	if names == "" && !isSet(fs, "paths") {
		if names = defaultPaths(m); connect != "" {
			names = "tcp"
		}
	}
	for _, check := range []struct {
		flag string
		err  error
	}{
		{"--paths", o.setPaths(names)},
		{"--control", o.setControl()},
		{"--size", o.setSizes(size)},
		{"--duration", between(o.duration, time.Millisecond, maxDuration)},
		{"--warmup", between(o.warmup, 0, maxDuration)},
		{"--runs", between(o.runs, 1, maxRuns)},
		{"--streams", between(o.streams, 1, maxStreams)},
		{"--congestion", o.checkCongestion()},
		{"--cpus", o.setCPUs(cpus)},
		{"--buffers", setSize(&o.buffers, buffers)},
		{"--chunk", setSize(&o.direct.Chunk, chunk)},
		{"--ring", setSize(&o.direct.Ring, ring)},
		{"--chunk, --ring, --spin", o.checkDirect()},
		{"--direction", o.setDirection(direction)},
		{"--paths", o.checkRaw()},
		{"--coalesce", o.setCoalesce(coalesce)},
		{"--mtu", o.checkMTU()},
		{"--eager-threshold", o.checkEager()},
		{"--rx-mode", o.checkExn0(o.node.Mode != napi.ModeNAPI)},
		{"--coalesce", o.checkExn0(o.node.Coalesce != napi.Coalesce{})},
		{"--no-fast-path", o.checkExn0(o.node.NoFastPath)},
	} {
		if check.err != nil {
			return o, fmt.Errorf("%s: %w", check.flag, check.err)
		}
	}
	return o, nil
}

// isSet reports whether the command line has a flag.
func isSet(fs *flag.FlagSet, name string) (set bool) {
	fs.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func (o *options) setPaths(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		kind, err := o.find(strings.TrimSpace(name))
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
func defaultPaths(m measure) string {
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
		if _, err := o.find("lo"); err != nil { // to another host
			o.control = "tcp"
		}
		if slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return k.Privileged }) {
			o.control = "veth"
		}
	}
	kind, err := o.find(o.control)
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
		n, err := parseSize(text)
		if err != nil {
			return err
		}
		o.sizes = append(o.sizes, n)
	}
	for _, k := range o.paths {
		if smallest := slices.Min(o.sizes); !k.Takes(o.measure.kind, smallest) {
			return fmt.Errorf("%s takes at most %s", k.Name, result.Count(k.MaxSize, "byte"))
		}
	}
	return nil
}

// parseSize reads "64" or "128k".
func parseSize(text string) (int, error) {
	text = strings.TrimSpace(text)
	digits, unit := text, 1
	switch {
	case strings.HasSuffix(text, "k"), strings.HasSuffix(text, "K"):
		digits, unit = text[:len(text)-1], 1<<10
	case strings.HasSuffix(text, "m"), strings.HasSuffix(text, "M"):
		digits, unit = text[:len(text)-1], 1<<20
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write bytes, as in 1,64,128k", text)
	}
	if n < 1 || n > paths.MaxSize/unit {
		return 0, fmt.Errorf("%s is not between 1 and %d bytes", text, paths.MaxSize)
	}
	return n * unit, nil
}

// setSize reads a size that may be left out.
func setSize(n *int, text string) (err error) {
	if text != "" {
		*n, err = parseSize(text)
	}
	return err
}

// checkDirect refuses settings of direct sockets without one.
func (o *options) checkDirect() error {
	if o.direct != (tcpbench.DirectSpec{}) && !slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return strings.HasPrefix(k.Name, "ds") }) {
		return errors.New("they are those of direct sockets: add ds to --paths")
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
	allowed := tcpbench.AllowedCPUs()
	client, server, found := strings.Cut(text, ",")
	c, errC := strconv.Atoi(client)
	s, errS := strconv.Atoi(server)
	if !found || errC != nil || errS != nil {
		return fmt.Errorf("%q: write any, apart, same, or the two ends' CPUs as in 0,1", text)
	}
	for _, cpu := range []int{c, s} {
		if !slices.Contains(allowed, cpu) {
			return fmt.Errorf("no CPU %d here: choose from %s", cpu, joinInts(allowed))
		}
	}
	o.cpus = tcpbench.Placement{Client: c, Server: s}
	return nil
}

func (o *options) checkMTU() error {
	if o.node.MTU != 0 && !slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return k.Fabric }) {
		return errors.New("it is exn0's: add exn, exn-shm or netstack to --paths")
	}
	return nil
}

// checkExn0 refuses a setting of exn0 without one.
func (o *options) checkExn0(set bool) error {
	if set && !slices.ContainsFunc(o.paths, func(k paths.Kind) bool { return k.Exn0 }) {
		return errors.New("it is exn0's: add exn or exn-shm to --paths")
	}
	return nil
}

func (o *options) checkEager() error {
	if o.node.EagerThreshold == 0 {
		return nil
	}
	if err := o.checkExn0(true); err != nil {
		return err
	}
	return between(o.node.EagerThreshold, minEager, int(cmp.Or(o.node.MTU, mtu.Default)))
}

// checkRaw refuses what a unit of the NIC cannot be asked for.
func (o *options) checkRaw() error {
	i := slices.IndexFunc(o.paths, func(k paths.Kind) bool { return k.Raw })
	if i >= 0 && (o.streams > 1 || o.reverse) {
		return fmt.Errorf("%s has neither connections nor directions: leave out --streams and --direction", o.paths[i].Name)
	}
	return nil
}

// setDirection reads "out" or "in".
func (o *options) setDirection(text string) error {
	if text != "out" && text != "in" {
		return fmt.Errorf("%q: write out (the end that connects sends) or in (the end that listens does)", text)
	}
	o.reverse = text == "in"
	return nil
}

// setCoalesce reads "off", "adaptive" or "FRAMES/MICROSECONDS".
func (o *options) setCoalesce(text string) error {
	switch text {
	case "off":
		return nil
	case "adaptive":
		o.node.Coalesce.Adaptive = true
		return nil
	}
	frames, us, ok := strings.Cut(text, "/")
	f, errF := strconv.Atoi(frames)
	u, errU := strconv.Atoi(us)
	if !ok || errF != nil || errU != nil {
		return fmt.Errorf("%q: write off, adaptive, or FRAMES/MICROSECONDS as in 16/50", text)
	}
	o.node.Coalesce.Frames, o.node.Coalesce.Delay = f, time.Duration(u)*time.Microsecond
	return o.node.Coalesce.Validate()
}

// checkCongestion refuses what cannot be the name of a congestion control: the
// kernel would cut it (TCP_CA_NAME_MAX is 16, with the final zero).
func (o *options) checkCongestion() error {
	name := o.congestion
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "\x00/ ") {
		return errors.New("name one of sysctl net.ipv4.tcp_available_congestion_control")
	}
	if o.hasPath("netstack") && name != "cubic" && name != "reno" {
		return fmt.Errorf("netstack has cubic and reno, not %s: leave it out of --paths, or choose one of those", name)
	}
	return nil
}

func between[T int | time.Duration](v, low, high T) error {
	if v < low || v > high {
		return fmt.Errorf("%v is not between %v and %v", v, low, high)
	}
	return nil
}

func joinInts(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

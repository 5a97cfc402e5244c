package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/tcpbench"
	"exnet/mtu"
	"exnet/napi"

	"github.com/spf13/pflag"
)

const (
	maxStreams  = 256
	maxRuns     = measure.MaxRuns
	maxDuration = measure.MaxDuration
	maxRest     = 10 * time.Second

	// minEager is the least threshold: what fits one VELO message.
	minEager = 120
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
	buffers      int // bytes of a socket's
	direct       tcpbench.DirectSpec
	reverse      bool // the end that listens sends
	noDelay      bool
	rest         time.Duration // before each message
	json         bool

	// tolerate is told that a path fails, which is then left out. nil: the first
	// failure ends all.
	tolerate func(path string, err error)
}

func (o options) spec(size int) tcpbench.Spec {
	return tcpbench.Spec{
		Kind: o.measure.kind, Size: size, Streams: o.streams, Reverse: o.reverse, NoDelay: o.noDelay, Rest: o.rest,
		Duration: o.duration, Warmup: o.warmup, Congestion: o.congestion, Buffers: o.buffers, CPUs: o.cpus,
		DirectSpec: o.direct,
	}
}

// measurements returns how many there are to take, if the CPUs stay where they are.
func (o options) measurements() int { return o.runs * len(o.sizes) * len(o.paths) }

// measureFlags are the flags of a measure, as they are written.
type measureFlags struct {
	o  options
	fs *pflag.FlagSet

	names, size, cpus, direction string
}

// newMeasureFlags defines the flags of a measure.
func newMeasureFlags(m pathMeasure, fs *pflag.FlagSet) *measureFlags {
	f := &measureFlags{o: options{measure: m, duration: time.Second, warmup: 300 * time.Millisecond, runs: 5, streams: 1}, fs: fs, size: m.size, cpus: m.cpus, direction: "out"}
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
	if m.oneWay() {
		fs.StringVar(&f.direction, "direction", "out", "`WHERE` out: the end that connects sends; in: the other one (out)")
	}
	if m.kind == tcpbench.PingPong {
		cli.Duration(fs, &o.rest, "rest", 0, maxRest, "`TIME` rest before each message, so that all that waits for it sleeps (0s)")
	}
	if m.kind == tcpbench.Stream {
		fs.BoolVar(&o.noDelay, "no-delay", false, "TCP_NODELAY: every message leaves at once")
	}
	fs.StringVar(&o.congestion, "congestion", "cubic", "`NAME` TCP congestion control on every path (cubic)")
	fs.StringVar(&f.cpus, "cpus", f.cpus, "`WHERE` CPUs of the end that connects and the one that listens: any (the scheduler's choice), apart or different (two), same (one), or two numbers as in 0,1 ("+m.cpus+")")
	sizeFlag(fs, &o.buffers, "buffers", "`SIZE` socket buffers of the kernel's TCP (the kernel's choice)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	cli.Group(fs, "exn0", f.defineExn0)
	cli.Group(fs, "Direct sockets", func(fs *pflag.FlagSet) {
		sizeFlag(fs, &o.direct.Chunk, "chunk", "`SIZE` bytes that are copied to the ring at a time (64k)")
		sizeFlag(fs, &o.direct.Ring, "ring", "`SIZE` bytes of a ring (2m)")
		cli.Duration(fs, &o.direct.Spin, "spin", -1, time.Second, "`TIME` how long it looks before it sleeps; -1ns: not at all (50us)")
	})
	return f
}

func (f *measureFlags) defineExn0(fs *pflag.FlagSet) {
	n := &f.o.node
	fs.Func("mtu", "`BYTES` its MTU (65535)", func(s string) error {
		v, err := cli.ParseSize(s, int(mtu.MinIPv6), int(mtu.Default))
		n.MTU = mtu.Network(v)
		return err
	})
	cli.Size(fs, &n.EagerThreshold, "eager-threshold", minEager, int(mtu.Default), "`BYTES` longest frame that goes over VELO (480)")
	command.ReceiveFlags(fs, &n.Mode, &n.Coalesce)
	fs.BoolVar(&n.NoFastPath, "no-fast-path", false, "every packet through netstack")
}

// sizeFlag defines a flag that takes the bytes of a message, a buffer or a ring.
func sizeFlag(fs *pflag.FlagSet, to *int, name, usage string) {
	cli.Size(fs, to, name, 1, paths.MaxSize, usage)
}

// options returns what the flags ask for, or says what is wrong with them.
func (f *measureFlags) options() (options, error) {
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
		{"--direction", o.setDirection(f.direction)},
		{"--coalesce-usecs, --coalesce-frames, --adaptive", o.node.Coalesce.Validate()},
		{"--eager-threshold", o.checkEager()},
		{"--chunk, --ring, --spin", o.needs(o.direct != tcpbench.DirectSpec{}, isDirect, "only direct sockets have them: add ds")},
		{"--mtu", o.needs(o.node.MTU != 0, hasExn0, onlyExn0)},
		{"--eager-threshold", o.needs(o.node.EagerThreshold != 0, hasExn0, onlyExn0)},
		{"--mode", o.needs(o.node.Mode != napi.ModeNAPI, hasExn0, onlyExn0)},
		{"--coalesce-usecs, --coalesce-frames, --adaptive", o.needs(o.node.Coalesce != napi.Coalesce{}, hasExn0, onlyExn0)},
		{"--no-fast-path", o.needs(o.node.NoFastPath, hasExn0, onlyExn0)},
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

const onlyExn0 = "only exn0 has it: add exn or exn-shm"

func hasExn0(k paths.Kind) bool  { return k.Exn0 }
func isDirect(k paths.Kind) bool { return strings.HasPrefix(k.Name, "ds") }

// needs refuses a setting that is set without a path that has it.
func (o *options) needs(set bool, has func(paths.Kind) bool, why string) error {
	if set && !slices.ContainsFunc(o.paths, has) {
		return errors.New(why + " to --paths")
	}
	return nil
}

// checkEager refuses a threshold that no frame has.
func (o *options) checkEager() error {
	n, most := o.node.EagerThreshold, int(cmp.Or(o.node.MTU, mtu.Default))
	if n != 0 && (n < minEager || n > most) {
		return fmt.Errorf("%d is not between %d and %d", n, minEager, most)
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

// checkCongestion refuses what cannot be the name of a congestion control: the
// kernel would cut it (TCP_CA_NAME_MAX is 16, with the final zero).
func (o *options) checkCongestion() error {
	name := o.congestion
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "\x00/ ") {
		return errors.New("name one of sysctl net.ipv4.tcp_available_congestion_control")
	}
	return nil
}

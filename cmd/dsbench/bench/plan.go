package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/report"
	"exnet/internal/tcpbench"
	"exnet/mtu"
	"exnet/napi"
)

// planned is a part that is to be measured.
type planned struct {
	id string
	o  options
}

// reportOptions are what the plan depends on.
type reportOptions struct {
	quick      bool
	runs       int
	duration   time.Duration
	warmup     time.Duration
	congestion string
	only       []string // paths; nil: all
}

// idleRest is long enough for a program, a daemon and their CPUs to sleep.
const idleRest = 20 * time.Millisecond

// reportParts are the parts of a report over paths as they are.
var reportParts = []struct {
	id, measure, paths string // the first path is the control
	full, quick        []int  // sizes; nil: not in a quick report
	set                func(*options)
}{
	{report.PartStream1, "stream", "lo veth relay exn:interrupt exn:napi exn:busy ds ds-zcopy",
		[]int{64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}, []int{64, 4 << 10, 64 << 10}, nil},
	{report.PartStream2, "stream", "lo veth exn:interrupt exn:napi ds", []int{512, 4 << 10, 16 << 10, 64 << 10, 256 << 10}, nil,
		func(o *options) { o.streams = 2 }},
	{report.PartLatency, "pingpong", "lo veth relay exn:interrupt exn:napi exn:busy exn:adaptive ds",
		[]int{1, 16, 64, 120, 512, 1024, 2048}, []int{1, 64, 1024}, nil},
	{report.PartIdle, "pingpong", "veth relay exn:napi exn-shm ds", []int{64}, nil, func(o *options) {
		o.runs, o.rest, o.duration, o.warmup = min(o.runs, 3), idleRest, 4*o.duration, o.duration
	}},
	{report.PartCPU, "cpu", "veth exn:interrupt exn:napi exn:busy exn:adaptive", []int{64, 512, 4 << 10, 16 << 10, 64 << 10}, []int{64, 4 << 10, 64 << 10},
		func(o *options) { o.noDelay = true }},
	{report.PartOSULat, "pingpong", "lo exn:napi exn-shm ds", []int{8, 1 << 10, 8 << 10, 64 << 10, 512 << 10}, nil, nil},
	{report.PartOSUBW, "stream", "lo exn-shm ds ds-zcopy", []int{120, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20}, nil, nil},
	{report.PartRate, "rate", "lo veth exn:napi ds", []int{1, 32, 64, 120, 512, 4 << 10}, []int{64, 1 << 10}, nil},
	{report.PartCRR, "crr", "lo net veth exn:napi net-exn exn-shm ds ds-exn", []int{64}, []int{64}, nil},
}

// value is a value of a setting: a path of its own, so that all values are interleaved.
type value struct {
	name, path string
	node       func(*paths.NodeConfig)
	spec       func(*tcpbench.Spec)
}

// pathKind is the path as the value has it.
func (v value) pathKind() paths.Kind {
	k, _ := paths.KindOf(v.path) // it is there
	open := k.Open
	k.Name = v.name
	k.Open = func(c paths.NodeConfig) paths.Path {
		if v.node != nil {
			v.node(&c)
		}
		if v.spec == nil {
			return open(c)
		}
		return paths.WithSpec(open(c), v.spec)
	}
	return k
}

func ofNode(name string, set func(*paths.NodeConfig)) value { return value{name, "exn", set, nil} }

func cpusOf(path, name string, p tcpbench.Placement) value {
	return value{name, path, nil, func(s *tcpbench.Spec) { s.CPUs = p }}
}

func bufferValue(name string, n int) value {
	return value{name, "exn", nil, func(s *tcpbench.Spec) { s.Buffers = n }}
}

// allTunings are the parts of a report that vary a setting, as figure 5.27 does. The first value is
// the control.
func allTunings() []tuning {
	coalesce := func(name string, c napi.Coalesce) value {
		return ofNode(name, func(n *paths.NodeConfig) { n.Coalesce = c })
	}
	eager := func(n int) value {
		return ofNode(fmt.Sprintf("%d bytes", n), func(c *paths.NodeConfig) { c.EagerThreshold = n })
	}
	size := func(n mtu.Network) value {
		return ofNode(fmt.Sprintf("MTU %d", n), func(c *paths.NodeConfig) { c.MTU = n })
	}
	var both []value
	for _, path := range []string{"lo", "ds"} {
		both = append(both, cpusOf(path, path+", two CPUs", tcpbench.Apart()), cpusOf(path, path+", one CPU", tcpbench.Together()))
	}
	return []tuning{
		{report.PartCPUs, "stream", "exn:napi", 64 << 10, []value{cpusOf("exn", "scheduler's choice", tcpbench.Anywhere()),
			cpusOf("exn", "two CPUs", tcpbench.Apart()), cpusOf("exn", "one CPU", tcpbench.Together())}},
		{report.PartMTU, "stream", "exn:napi", 64 << 10, []value{size(65535), size(9000), size(1500)}},
		{report.PartBuffers, "stream", "exn:napi", 64 << 10, []value{bufferValue("the kernel's choice", 0), bufferValue("64 KiB", 64<<10), bufferValue("256 KiB", 256<<10),
			bufferValue("1 MiB", 1<<20), bufferValue("4 MiB", 4<<20)}},
		{report.PartCoalesce, "stream", "exn:napi", 64 << 10, []value{coalesce("off", napi.Coalesce{}),
			coalesce("8 frames, 20 us", napi.Coalesce{Frames: 8, Delay: 20 * time.Microsecond}),
			coalesce("32 frames, 50 us", napi.Coalesce{Frames: 32, Delay: 50 * time.Microsecond}), coalesce("dynamic ITR", napi.Coalesce{Adaptive: true})}},
		{report.PartEager, "rate", "exn:napi", 1 << 10, []value{eager(480), eager(120), eager(1200), eager(2400)}},
		{report.PartDSCPUs, "stream", "ds", 64 << 10, both},
	}
}

// tuning is a setting and the values that are tried.
type tuning struct {
	id, measure string
	needs       string // the path without which it is left out
	size        int
	values      []value
}

// planParts returns the parts of a report, with those paths that usable accepts.
func planParts(ro reportOptions, usable func(name string) bool) (parts []planned) {
	add := func(id, measureName string, control string, list []paths.Kind, sizes []int, set func(*options)) {
		m, _ := measureOf(measureName)
		o := options{
			measure: m, paths: list, control: control, sizes: sizes, streams: 1, runs: ro.runs, duration: ro.duration, warmup: ro.warmup,
			congestion: ro.congestion, cpus: tcpbench.Anywhere(),
		}
		if m.cpus == "apart" {
			o.cpus = tcpbench.Apart()
		}
		if set != nil {
			set(&o)
		}
		if len(o.paths) > 0 && o.countMeasurements() > 0 {
			parts = append(parts, planned{id: id, o: o})
		}
	}
	for _, p := range reportParts {
		names := strings.Fields(p.paths)
		var list []paths.Kind
		for _, name := range names {
			if k, err := paths.KindOf(name); err == nil && usable(name) {
				list = append(list, k)
			}
		}
		sizes := p.full
		if ro.quick {
			sizes = p.quick
		}
		add(p.id, p.measure, names[0], list, sizes, p.set)
		if p.id != report.PartStream2 || ro.quick {
			continue
		}
		for _, t := range allTunings() { // in the order of the thesis's figures
			if !usable(t.needs) {
				continue
			}
			var list []paths.Kind
			for _, v := range t.values {
				list = append(list, v.pathKind())
			}
			add(t.id, t.measure, t.values[0].name, list, []int{t.size}, nil)
		}
	}
	return parts
}

// pathsOf lists the paths of a plan by name, each once.
func pathsOf(parts []planned) (list []paths.Kind) {
	for _, p := range parts {
		for _, k := range p.o.paths {
			if !slices.ContainsFunc(list, func(x paths.Kind) bool { return x.Name == k.Name }) {
				list = append(list, k)
			}
		}
	}
	return list
}

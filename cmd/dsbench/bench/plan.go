package bench

import (
	"slices"
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

// plan returns the parts of a report, with those paths that usable accepts.
func plan(ro reportOptions, usable func(name string) bool) (parts []planned) {
	add := func(id, measureName string, paths []paths.Kind, change func(*options)) {
		m, _ := measureOf(measureName)
		o := options{
			measure: m, control: "lo", streams: 1, runs: ro.runs, duration: ro.duration, warmup: ro.warmup,
			congestion: ro.congestion, cpus: tcpbench.Anywhere(),
		}
		if m.cpus == "apart" {
			o.cpus = tcpbench.Apart()
		}
		o.paths = paths
		change(&o)
		if len(o.paths) > 0 && o.measurements() > 0 {
			parts = append(parts, planned{id: id, o: o})
		}
	}
	kinds := func(names ...string) (list []paths.Kind) {
		for _, name := range names {
			if k, err := paths.KindOf(name); err == nil && usable(name) {
				list = append(list, k)
			}
		}
		return list
	}
	sizes := func(full, quick []int) func(*options) {
		return func(o *options) {
			o.sizes = full
			if ro.quick {
				o.sizes = quick
			}
		}
	}
	add(report.PartStream1, "stream", kinds("lo", "veth", "relay", "exn:interrupt", "exn:napi", "exn:busy", "netstack", "ds", "ds-zcopy"),
		sizes([]int{64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}, []int{64, 4 << 10, 64 << 10}))
	if !ro.quick {
		add(report.PartStream2, "stream", kinds("lo", "veth", "exn:interrupt", "exn:napi", "ds"), func(o *options) {
			o.streams, o.sizes = 2, []int{512, 4 << 10, 16 << 10, 64 << 10, 256 << 10}
		})
		for _, t := range tunings(usable) {
			add(t.id, t.measure, t.paths, func(o *options) { o.sizes, o.control = []int{t.size}, t.paths[0].Name })
		}
	}
	add(report.PartLatency, "pingpong", kinds("lo", "veth", "relay", "exn:interrupt", "exn:napi", "exn:busy", "exn:adaptive", "netstack", "ds", "velo-shm"),
		sizes([]int{1, 16, 64, 120, 512, 1024, 2048}, []int{1, 64, 1024}))
	if !ro.quick {
		add(report.PartIdle, "pingpong", kinds("veth", "relay", "exn:napi", "exn-shm", "ds"), func(o *options) {
			o.sizes, o.control, o.runs = []int{64}, "veth", min(o.runs, 3)
			o.rest, o.duration, o.warmup = idleRest, 4*o.duration, o.duration
		})
	}
	add(report.PartCPU, "cpu", kinds("veth", "exn:interrupt", "exn:napi", "exn:busy", "exn:adaptive"), func(o *options) {
		o.noDelay, o.control = true, "veth"
		sizes([]int{64, 512, 4 << 10, 16 << 10, 64 << 10}, []int{64, 4 << 10, 64 << 10})(o)
	})
	if !ro.quick {
		add(report.PartOSULat, "pingpong", kinds("lo", "exn:napi", "exn-shm", "ds", "rma-shm"),
			sizes([]int{8, 1 << 10, 8 << 10, 64 << 10, 512 << 10}, nil))
		add(report.PartOSUBW, "stream", kinds("lo", "exn-shm", "ds", "ds-zcopy", "velo-shm", "rma", "rma-shm"),
			sizes([]int{120, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20}, nil))
	}
	add(report.PartRate, "rate", kinds("lo", "veth", "exn:napi", "netstack", "ds", "velo", "velo-shm"),
		sizes([]int{1, 32, 64, 120, 512, 4 << 10}, []int{64, 1 << 10}))
	add(report.PartCRR, "crr", kinds("lo", "net", "veth", "exn:napi", "net-exn", "exn-shm", "netstack", "ds", "ds-exn"), sizes([]int{64}, []int{64}))
	return parts
}

// tuning is a setting that is varied, each value a path of its own so that they
// are interleaved.
type tuning struct {
	id, measure string
	size        int
	paths       []paths.Kind
}

// tunings are those of figure 5.27.
func tunings(usable func(string) bool) (list []tuning) {
	if usable("exn:napi") {
		list = exnTunings()
	}
	if usable("ds") {
		list = append(list, dsTuning())
	}
	return list
}

// placed is a path whose ends are placed in a way of its own.
func placed(path, name string, p tcpbench.Placement) paths.Kind {
	k, _ := paths.KindOf(path) // it is there
	open := k.Open
	k.Name = name
	k.Open = func(c paths.NodeConfig) paths.Path {
		return paths.WithSpec(open(c), func(s *tcpbench.Spec) { s.CPUs = p })
	}
	return k
}

// dsTuning compares two CPUs, near or far as they are, with one.
func dsTuning() tuning {
	return tuning{report.PartDSCPUs, "stream", 64 << 10, []paths.Kind{
		placed("lo", "lo, two CPUs", tcpbench.Apart()),
		placed("lo", "lo, one CPU", tcpbench.Together()),
		placed("ds", "ds, two CPUs", tcpbench.Apart()),
		placed("ds", "ds, one CPU", tcpbench.Together()),
		placed("ring", "ring, two CPUs", tcpbench.Apart()),
		placed("ring", "ring, one CPU", tcpbench.Together()),
	}}
}

// exnTunings are those over exn0.
func exnTunings() []tuning {
	base, _ := paths.KindOf("exn") // it is there
	node := func(name string, set func(*paths.NodeConfig)) paths.Kind {
		k := base
		k.Name = name
		k.Open = func(c paths.NodeConfig) paths.Path {
			set(&c)
			return base.Open(c)
		}
		return k
	}
	spec := func(name string, set func(*tcpbench.Spec)) paths.Kind {
		k := base
		k.Name = name
		k.Open = func(c paths.NodeConfig) paths.Path { return paths.WithSpec(base.Open(c), set) }
		return k
	}
	buffers := func(name string, n int) paths.Kind {
		return spec(name, func(s *tcpbench.Spec) { s.Buffers = n })
	}
	const large = 64 << 10
	return []tuning{
		{report.PartCPUs, "stream", large, []paths.Kind{
			placed("exn", "scheduler's choice", tcpbench.Anywhere()),
			placed("exn", "two CPUs", tcpbench.Apart()),
			placed("exn", "one CPU", tcpbench.Together()),
		}},
		{report.PartMTU, "stream", large, []paths.Kind{
			node("MTU 65535", func(c *paths.NodeConfig) {}),
			node("MTU 9000", func(c *paths.NodeConfig) { c.MTU = mtu.Network(9000) }),
			node("MTU 1500", func(c *paths.NodeConfig) { c.MTU = mtu.Network(1500) }),
		}},
		{report.PartBuffers, "stream", large, []paths.Kind{
			buffers("the kernel's choice", 0),
			buffers("64 KiB", 64<<10),
			buffers("256 KiB", 256<<10),
			buffers("1 MiB", 1<<20),
			buffers("4 MiB", 4<<20),
		}},
		{report.PartCoalesce, "stream", large, []paths.Kind{
			node("off", func(c *paths.NodeConfig) {}),
			node("8 frames, 20 us", func(c *paths.NodeConfig) { c.Coalesce = napi.Coalesce{Frames: 8, Delay: 20 * time.Microsecond} }),
			node("32 frames, 50 us", func(c *paths.NodeConfig) { c.Coalesce = napi.Coalesce{Frames: 32, Delay: 50 * time.Microsecond} }),
			node("dynamic ITR", func(c *paths.NodeConfig) { c.Coalesce = napi.Coalesce{Adaptive: true} }),
		}},
		{report.PartEager, "rate", 1 << 10, []paths.Kind{
			node("480 bytes", func(c *paths.NodeConfig) {}),
			node("120 bytes", func(c *paths.NodeConfig) { c.EagerThreshold = 120 }),
			node("1200 bytes", func(c *paths.NodeConfig) { c.EagerThreshold = 1200 }),
			node("2400 bytes", func(c *paths.NodeConfig) { c.EagerThreshold = 2400 }),
		}},
	}
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

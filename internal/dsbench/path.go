package dsbench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"exnet/internal/dsbench/rawbench"
	"exnet/internal/tcpbench"
	"exnet/mtu"
	"exnet/napi"
)

// Path is a way from one program to another that can be measured.
//
// Concurrency: one goroutine at a time. A cancelled context ends a measurement
// at once, with its error.
type Path interface {
	// Setup makes the path; only Close may be called before it or after its
	// failure.
	Setup(ctx context.Context) error

	// Info returns what a figure of this path depends on.
	Info() PathInfo

	Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error)

	// Close removes all that Setup made. It is idempotent.
	Close() error
}

// PathInfo is what a path's figures depend on besides the Spec.
type PathInfo struct {
	MTU        int    // 0: it has none
	NoFastPath bool   // every packet passes through netstack
	RxMode     string // how nodes receive; "": the path has none
	Coalesce   string // and hold back interrupts
	Unbound    bool   // Spec.CPUs is ignored: the scheduler places both ends
	Polls      bool   // both ends poll: on two CPUs unless told otherwise
}

// NodeConfig configures the nodes of the paths over the fabric.
type NodeConfig struct {
	MTU            mtu.Network   `json:"mtu,omitempty"` // default mtu.Default
	NoFastPath     bool          `json:"no_fast_path,omitempty"`
	EagerThreshold int           `json:"eager_threshold,omitempty"` // default exteth.DefaultEagerThreshold
	Mode           napi.Mode     `json:"mode"`
	Coalesce       napi.Coalesce `json:"coalesce"`
}

// info returns what a figure over nodes with this configuration depends on.
func (c NodeConfig) info(mtu int) PathInfo {
	return PathInfo{MTU: mtu, NoFastPath: c.NoFastPath, RxMode: c.Mode.String(), Coalesce: coalesceString(c.Coalesce)}
}

// pathKind describes a path that dsbench knows.
type pathKind struct {
	name  string
	about string // for the help text
	open  func(NodeConfig) Path

	privileged bool // makes network namespaces and interfaces
	fabric     bool // uses a NodeConfig
	exn0       bool // has an exn0, and so a receive mode
	raw        bool // the NIC itself: one message after the other, one way
	extra      bool // not among the default paths
	maxSize    int  // of a message; 0: that of the options
	lacks      []tcpbench.Kind
}

// takes reports whether the path can be asked for a measure at a size.
func (k pathKind) takes(m measure, size int) bool {
	return !slices.Contains(k.lacks, m.kind) && size <= cmp.Or(k.maxSize, maxSize)
}

// pathKinds lists the known paths in the order of the help text.
func pathKinds() []pathKind {
	return []pathKind{
		{name: "lo", about: "kernel TCP over the loopback interface", open: newLo},
		{name: "veth", about: "kernel TCP over a veth pair between two namespaces", open: newVeth, privileged: true},
		{name: "exn", about: "kernel TCP over exn0, between two namespaces", open: newExn, privileged: true, fabric: true, exn0: true},
		{name: "exn-shm", about: "kernel TCP over exn0, a daemon for each node and shared memory between them", open: newExnShm, privileged: true, fabric: true, exn0: true},
		{name: "netstack", about: "netstack's TCP over the fabric, without exn0", open: newNetstack, fabric: true},
		{name: "net", about: "kernel TCP by Go's package net, over the loopback interface", open: newNet, extra: true},
		{name: "net-exn", about: "the same over exn0: what a Go program has without direct sockets", open: newDSExn(tcpbench.GoNet), privileged: true, fabric: true, exn0: true, extra: true},
		{name: "ds", about: "direct sockets between two processes, their shadow on the loopback interface", open: newDS(tcpbench.Direct)},
		{name: "ds-zcopy", about: "direct sockets between registered buffers, without a copy into a ring", open: newDS(tcpbench.ZeroCopy), lacks: []tcpbench.Kind{tcpbench.CRR}},
		{name: "ds-exn", about: "direct sockets between two namespaces, their shadow on exn0", open: newDSExn(tcpbench.Direct), privileged: true, fabric: true, exn0: true, extra: true},
		rawKind("velo", "VELO messages of the emulated NIC, both nodes in one process", rawbench.VELO, false),
		rawKind("velo-shm", "VELO messages, with a process for each node", rawbench.VELO, true),
		rawKind("rma", "RMA transfers, both nodes in one process (GET; PUT for ping-pong)", rawbench.RMA, false),
		rawKind("rma-shm", "RMA transfers, with a process for each node", rawbench.RMA, true),
	}
}

// rawKind describes a unit of the NIC as a path.
func rawKind(name, about string, u rawbench.Unit, shm bool) pathKind {
	k := pathKind{
		name: name, about: about, open: newRaw(u, shm),
		raw: true, extra: true, maxSize: rawbench.MaxVELO, lacks: []tcpbench.Kind{tcpbench.CRR},
	}
	if u == rawbench.RMA {
		k.maxSize = rawbench.MaxRMA
		k.lacks = append(k.lacks, tcpbench.Rate)
	}
	return k
}

// rxVariants are the receive modes that a path over exn0 has in its name, as in
// exn:irq, so that several are measured side by side.
var rxVariants = []struct {
	name, about string
	set         func(*NodeConfig)
}{
	{"irq", "an interrupt for each frame", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeInterrupt, napi.Coalesce{} }},
	{"napi", "NAPI, no interrupt held back", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeNAPI, napi.Coalesce{} }},
	{"busy", "busy-polling: it takes a core", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeBusyPoll, napi.Coalesce{} }},
	{"itr", "NAPI with the dynamic ITR", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeNAPI, napi.Coalesce{Adaptive: true} }},
}

// pathKindOf finds a path by its name, which may have a receive mode behind it.
func pathKindOf(name string) (pathKind, error) {
	base, variant, isVariant := strings.Cut(name, ":")
	kinds := pathKinds()
	i := slices.IndexFunc(kinds, func(k pathKind) bool { return k.name == base })
	if i < 0 {
		names := make([]string, len(kinds))
		for j, k := range kinds {
			names[j] = k.name
		}
		return pathKind{}, fmt.Errorf("unknown path %q: choose from %s", name, strings.Join(names, ", "))
	}
	k := kinds[i]
	if !isVariant {
		return k, nil
	}
	if !k.exn0 {
		return pathKind{}, fmt.Errorf("path %s has no receive modes: leave out %q", base, ":"+variant)
	}
	var names []string
	for _, v := range rxVariants {
		if v.name == variant {
			open := k.open
			k.name, k.about = name, k.about+": "+v.about
			k.open = func(c NodeConfig) Path {
				v.set(&c)
				return open(c)
			}
			return k, nil
		}
		names = append(names, base+":"+v.name)
	}
	return pathKind{}, fmt.Errorf("unknown path %q: choose from %s", name, strings.Join(names, ", "))
}

// coalesceString is what --coalesce takes.
func coalesceString(c napi.Coalesce) string {
	switch {
	case c.Adaptive:
		return "adaptive"
	case c.Frames == 0 && c.Delay == 0:
		return "off"
	}
	return fmt.Sprintf("%d/%d", c.Frames, c.Delay.Microseconds())
}

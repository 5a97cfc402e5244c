package paths

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	Info() Info

	Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error)

	// Close removes all that Setup made. It is idempotent.
	Close() error
}

// Info is what a path's figures depend on besides the Spec.
type Info struct {
	MTU        int    // 0: it has none
	NoFastPath bool   // every packet passes through netstack
	RxMode     string // how nodes receive; "": the path has none
	Coalesce   string // and hold back interrupts
}

// NodeConfig configures the nodes of the paths over the fabric.
type NodeConfig struct {
	MTU            mtu.Network   `json:"mtu,omitempty"` // default mtu.Default
	NoFastPath     bool          `json:"no_fast_path,omitempty"`
	EagerThreshold int           `json:"eager_threshold,omitempty"` // default exteth.DefaultEagerThreshold
	Mode           napi.Mode     `json:"mode"`
	Coalesce       napi.Coalesce `json:"coalesce"`
}

// infoOf returns what a figure over nodes with this configuration depends on.
func (c NodeConfig) infoOf(mtu int) Info {
	return Info{MTU: mtu, NoFastPath: c.NoFastPath, RxMode: c.Mode.String(), Coalesce: CoalesceString(c.Coalesce)}
}

// Kind describes a path that dsbench knows.
type Kind struct {
	Name  string
	About string // for the help text
	Open  func(NodeConfig) Path

	Privileged bool // makes network namespaces and interfaces
	Exn0       bool // has an exn0, and so a receive mode
	Extra      bool // not among the default paths
	Lacks      []tcpbench.Kind
}

// MaxSize is the largest message that can be measured, in bytes.
const MaxSize = 64 << 20

// Kinds lists the known paths in the order of the help text.
func Kinds() []Kind {
	return []Kind{
		{Name: "lo", About: "kernel TCP over the loopback interface", Open: newLo},
		{Name: "veth", About: "kernel TCP over a veth pair between two namespaces", Open: newVeth, Privileged: true},
		{Name: "relay", About: "kernel TCP between two TUN devices that a loop joins: exn0 without a fabric, its bound", Open: newRelay, Privileged: true, Extra: true},
		{Name: "exn", About: "kernel TCP over exn0, between two namespaces", Open: newExn, Privileged: true, Exn0: true},
		{Name: "exn-shm", About: "kernel TCP over exn0, a daemon for each node and shared memory between them", Open: newDaemons(daemonPath{}), Privileged: true, Exn0: true},
		{Name: "net", About: "kernel TCP by Go's package net, over the loopback interface", Open: overTransport(newLo, tcpbench.GoNet), Extra: true},
		{Name: "net-exn", About: "the same over exn0: what a Go program has without direct sockets", Open: overTransport(newExn, tcpbench.GoNet), Privileged: true, Exn0: true, Extra: true},
		{Name: "unix", About: "stream sockets of the Unix domain, without TCP and IP", Open: overTransport(newUnix, tcpbench.Unix), Extra: true},
		{Name: "ds", About: "direct sockets between two processes, their shadow on the loopback interface", Open: newDS(tcpbench.Direct)},
		{Name: "ds-zcopy", About: "direct sockets between registered buffers, without a copy into a ring", Open: newDS(tcpbench.ZeroCopy), Lacks: []tcpbench.Kind{tcpbench.CRR}},
		{Name: "ds-exn", About: "direct sockets between two namespaces, their shadow on exn0", Open: overTransport(newExn, tcpbench.Direct), Privileged: true, Exn0: true, Extra: true},
		{Name: "exn-stream", About: "kernel TCP over exn0, two processes that a stream link over a veth pair joins", Open: newDaemons(daemonPath{apart: true}), Privileged: true, Exn0: true, Extra: true},
		{Name: "ds-fabric", About: "direct sockets between two hosts that a veth pair joins, through the fabric", Open: overTransport(newDaemons(daemonPath{apart: true, direct: true}), tcpbench.Direct), Privileged: true, Exn0: true, Extra: true},
		{Name: "exn-ofi", About: "the same, but libfabric's provider tcp carries the link", Open: newDaemons(daemonPath{apart: true, link: "ofi:tcp"}), Privileged: true, Exn0: true, Extra: true},
	}
}

// Variants are the receive modes that a path over exn0 has in its name, as in
// exn:busy, so that several are measured side by side.
var Variants = []struct {
	Name, About string
	set         func(*NodeConfig)
}{
	{"interrupt", "an interrupt for each frame", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeInterrupt, napi.Coalesce{} }},
	{"napi", "NAPI, no interrupt held back", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeNAPI, napi.Coalesce{} }},
	{"busy", "busy-polling: it takes a core", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeBusyPoll, napi.Coalesce{} }},
	{"adaptive", "NAPI with the dynamic ITR", func(c *NodeConfig) { c.Mode, c.Coalesce = napi.ModeNAPI, napi.Coalesce{Adaptive: true} }},
}

// formerVariants are names that receive modes once had, and have in old results.
var formerVariants = map[string]string{"irq": "interrupt", "itr": "adaptive"}

// CurrentName returns the name that a path of old results has now.
func CurrentName(name string) string {
	base, variant, _ := strings.Cut(name, ":")
	if now := formerVariants[variant]; now != "" {
		return base + ":" + now
	}
	return name
}

// KindOf finds a path by its name, which a receive mode may follow.
func KindOf(name string) (Kind, error) {
	base, variant, isVariant := strings.Cut(name, ":")
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == base })
	if i < 0 {
		names := make([]string, len(kinds))
		for j, k := range kinds {
			names[j] = k.Name
		}
		return Kind{}, fmt.Errorf("unknown path %q: choose from %s", name, strings.Join(names, ", "))
	}
	k := kinds[i]
	if !isVariant {
		return k, nil
	}
	if !k.Exn0 {
		return Kind{}, fmt.Errorf("path %s has no receive modes: leave out %q", base, ":"+variant)
	}
	var names []string
	for _, v := range Variants {
		if v.Name == variant || v.Name == formerVariants[variant] {
			name = base + ":" + v.Name
			open := k.Open
			k.Name, k.About = name, k.About+": "+v.About
			k.Open = func(c NodeConfig) Path {
				v.set(&c)
				return open(c)
			}
			return k, nil
		}
		names = append(names, base+":"+v.Name)
	}
	return Kind{}, fmt.Errorf("unknown path %q: choose from %s", name, strings.Join(names, ", "))
}

// CoalesceString says in a word how interrupts are held back: adaptive, off, or
// FRAMES/MICROSECONDS.
func CoalesceString(c napi.Coalesce) string {
	switch {
	case c.Adaptive:
		return "adaptive"
	case c.Frames == 0 && c.Delay == 0:
		return "off"
	}
	return fmt.Sprintf("%d/%d", c.Frames, c.Delay.Microseconds())
}

// WithSpec returns p, measured with settings of its own: set changes those of each
// measurement.
func WithSpec(p Path, set func(*tcpbench.Spec)) Path { return specPath{p, set} }

// overTransport opens a path that is measured over a transport.
func overTransport(open func(NodeConfig) Path, t tcpbench.Transport) func(NodeConfig) Path {
	return func(c NodeConfig) Path {
		return WithSpec(open(c), func(s *tcpbench.Spec) { s.Transport = t })
	}
}

type specPath struct {
	Path
	set func(*tcpbench.Spec)
}

// Measure implements Path.
func (p specPath) Measure(ctx context.Context, s tcpbench.Spec) (tcpbench.Result, error) {
	p.set(&s)
	return p.Path.Measure(ctx, s)
}

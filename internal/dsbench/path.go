package dsbench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"exnet/internal/tcpbench"
	"exnet/mtu"
)

// Path is a way from one program to another that can be measured.
//
// Concurrency: one goroutine at a time. A cancelled context ends a measurement
// at once, with its error.
type Path interface {
	Name() string

	// Setup makes the path; only Close may be called before it or after its
	// failure.
	Setup(ctx context.Context) error

	// Info returns what a figure of this path depends on.
	Info() PathInfo

	Stream(ctx context.Context, spec tcpbench.StreamSpec) (tcpbench.StreamResult, error)
	PingPong(ctx context.Context, spec tcpbench.PingPongSpec) (tcpbench.PingPongResult, error)

	// Close removes all that Setup made. It is idempotent.
	Close() error
}

// PathInfo is what a path's figures depend on besides the Spec.
type PathInfo struct {
	MTU        int
	NoFastPath bool // every packet passes through netstack
	Unbound    bool // Spec.CPUs is ignored: the scheduler places both ends
}

// NodeConfig configures the nodes of the paths over the fabric.
type NodeConfig struct {
	MTU        mtu.Network `json:"mtu,omitempty"` // default mtu.Default
	NoFastPath bool        `json:"no_fast_path,omitempty"`
}

// pathKind describes a path that dsbench knows.
type pathKind struct {
	name  string
	about string // for the help text
	open  func(NodeConfig) Path

	privileged bool // makes network namespaces and interfaces
	fabric     bool // uses a NodeConfig
}

// pathKinds lists the known paths in the order of the help text.
func pathKinds() []pathKind {
	return []pathKind{
		{name: "lo", about: "kernel TCP over the loopback interface", open: newLo},
		{name: "veth", about: "kernel TCP over a veth pair between two namespaces", open: newVeth, privileged: true},
		{name: "exn", about: "kernel TCP over exn0, between two namespaces", open: newExn, privileged: true, fabric: true},
		{name: "exn-shm", about: "the same, with a process for each node and shared memory between them", open: newExnShm, privileged: true, fabric: true},
		{name: "netstack", about: "netstack's TCP over the fabric, without exn0", open: newNetstack, fabric: true},
	}
}

// pathKindOf finds a path by its name.
func pathKindOf(name string) (pathKind, error) {
	kinds := pathKinds()
	i := slices.IndexFunc(kinds, func(k pathKind) bool { return k.name == name })
	if i < 0 {
		names := make([]string, len(kinds))
		for j, k := range kinds {
			names[j] = k.name
		}
		return pathKind{}, fmt.Errorf("unknown path %q: choose from %s", name, strings.Join(names, ", "))
	}
	return kinds[i], nil
}

package paths

import (
	"context"

	"exnet/cmd/dsbench/internal/rawbench"
	"exnet/internal/tcpbench"
)

// rawPath is a unit of the emulated NIC itself, without EXT-Eth and without IP, or a bare ring.
// Both ends poll.
type rawPath struct {
	unit rawbench.Unit
	shm  bool // a process for each node
}

func newRaw(u rawbench.Unit, shm bool) func(NodeConfig) Path {
	return func(NodeConfig) Path { return rawPath{u, shm} }
}

func (p rawPath) Setup(context.Context) error { return nil }

func (p rawPath) Info() Info { return Info{Polls: true} }

// Measure implements Path.
func (p rawPath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	if spec.CPUs == tcpbench.Anywhere() {
		spec.CPUs = tcpbench.Apart() // on one they would wait for each other's time slice
	}
	return rawbench.Measure(ctx, p.unit, p.shm, spec)
}

func (p rawPath) Close() error { return nil }

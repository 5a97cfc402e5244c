package paths

import (
	"context"

	"exnet/cmd/dsbench/internal/rawbench"
	"exnet/internal/tcpbench"
)

// rawPath is a unit of the emulated NIC itself, without EXT-Eth and without IP, or a bare ring.
// Each end is a process, and polls.
type rawPath struct{ unit rawbench.Unit }

func newRaw(u rawbench.Unit) func(NodeConfig) Path {
	return func(NodeConfig) Path { return rawPath{u} }
}

func (p rawPath) Setup(context.Context) error { return nil }

func (p rawPath) Info() Info { return Info{Polls: true} }

// Measure implements Path.
func (p rawPath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	if spec.CPUs == tcpbench.Anywhere() {
		spec.CPUs = tcpbench.Apart() // on one they would wait for each other's time slice
	}
	return rawbench.Measure(ctx, p.unit, spec)
}

func (p rawPath) Close() error { return nil }

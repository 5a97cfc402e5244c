package paths

import (
	"context"

	"exnet/internal/tcpbench"
)

// rawPath is a unit of the emulated NIC itself, without EXT-Eth and without IP, or a bare ring
// (package rawbench). Each end is a process, and polls.
type rawPath struct{ *tcpbench.Pair }

func newRaw(NodeConfig) Path { return rawPath{tcpbench.Between(tcpbench.End{}, tcpbench.End{})} }

func (p rawPath) Setup(context.Context) error { return nil }

func (p rawPath) Info() Info { return Info{Polls: true} }

// Measure implements Path.
func (p rawPath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	if spec.CPUs == tcpbench.Anywhere() {
		spec.CPUs = tcpbench.Apart() // on one they would wait for each other's time slice
	}
	return p.Pair.Measure(ctx, spec)
}

func (p rawPath) Close() error { return nil }

package programs

import (
	"fmt"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
)

// MTUs of the networks.
const (
	loopbackMTU = 65536
	bridgeMTU   = 1500
)

// Tables of the figures; between namespaces with latencies and CPU times in place of the range.
var (
	loopbackTable = result.NewTable(" ", "measure -22", "path -7", "median 10", "=unit -7", "min 10", "max 10", "spread 7", "times 6", "p99 us=p99 9")
	bridgeTable   = result.NewTable(" ", "measure -16", "path -7", "median 10", "=unit -7", "spread 7", "times 6", "p50 us=p50 9", "p99 us=p99 9", "CPU us 9")
)

// table returns the one of the options, and what it shows.
func (o Options) table(d coredist.Distance) (t result.Table, what string) {
	t, what = loopbackTable, "Programs over loopback, with exn-run (direct) and without (tcp, udp)"
	if o.network == networkBridge {
		t, what = bridgeTable, "Programs in namespaces on a bridge, with exn-tun agent (direct) and without (tcp)"
	}
	return t, fmt.Sprintf("%s, %s of %v each, interleaved; %v.", what, display.Count(o.runs, "run"), o.duration, d)
}

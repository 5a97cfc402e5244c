package exnrun

import (
	"net/netip"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
)

// TestExplainUDP has flows of datagrams be told as such.
func TestExplainUDP(t *testing.T) {
	ap := netip.MustParseAddrPort
	flow := &connstats.Connection{
		Program: "dig", PID: 7, Local: ap("127.0.0.1:4000"), Remote: ap("127.0.0.1:53"), UDP: true, Mode: connstats.ModeDirect.String(),
		Via: connstats.PathMemory, Sent: connstats.Traffic{DirectBytes: 100, ShadowBytes: 20, VELOLast: 3, Demote: 2},
	}
	plain := &connstats.Connection{
		Program: "unbound", PID: 8, Local: ap("127.0.0.1:53"), Remote: ap("127.0.0.1:4001"), UDP: true, Server: true,
		Mode: connstats.ModeTCP.String(), Why: connstats.WhyRefused,
	}
	for got, want := range map[string]string{
		explain.Line(flow) + explain.Amounts(flow):              "dig[7] udp 127.0.0.1:4000 -> 127.0.0.1:53: direct: both ends share memory; sent 100 B direct, 20 B udp; received 0 B direct, 0 B udp",
		explain.Line(plain):                                     "unbound[8] udp 127.0.0.1:53 <- 127.0.0.1:4001: udp: refused",
		formatCounters(flow):                                    "tx VELO_LAST 3, datagrams dropped 2",
		summaryLine([]*connstats.Connection{flow, plain}, 0, 2): "2 connections in 2 processes: 1 direct, 0 tcp, 1 udp (1: refused)",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

package exntun

import (
	"bytes"
	"net/netip"
	"testing"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"
)

func TestSocketsText(t *testing.T) {
	ap := netip.MustParseAddrPort
	var b bytes.Buffer
	writeSockets(&b, &control.Sockets{Node: 1, Broker: "/run/exn/ds/4026532177.sock", Connections: []connstats.Connection{
		{
			Program: "iperf3", PID: 1234, Local: ap("10.2.0.1:40000"), Remote: ap("10.2.0.2:5201"), Mode: "direct", Device: 1,
			Sent:     connstats.Traffic{DirectBytes: 5 << 30, ShadowBytes: 37, VELO: 1, VELOLast: 2, RMAInfo: 81920, RMAAvail: 3, ZeroCopyBytes: 1 << 20},
			Received: connstats.Traffic{DirectBytes: 4, VELOLast: 1, RMAAvail: 81919, Shutdown: 1, Demote: 2},
			RingUsed: 786432, RingSize: 1 << 20,
		},
		{
			Program: "bad\x1b[2J|name", Local: ap("[fd00:10:2::1]:80"), Remote: ap("[fd00:10:2::2]:41000"), Server: true,
			Mode: "demoted", Reason: "program", RingUsed: 1 << 63, RingSize: 2,
		},
		{PID: 8, Local: ap("10.2.0.1:40001"), Remote: ap("10.2.0.3:80"), Mode: "direct", Path: "fabric"},
		{PID: 9, Local: ap("10.2.0.1:40002"), Remote: ap("10.2.0.4:80"), Mode: "direct", Path: "fabric", RDMA: true, Rule: "on --to 10.2.0.0/24"},
		{PID: 7, Local: ap("127.0.0.1:5"), Remote: ap("127.0.0.1:6"), Mode: "shadow", Reason: "switched off", Device: 6, Rule: "off --container \x1b"},
	}}, true)
	b.WriteString("\n")
	writeSockets(&b, &control.Sockets{Node: 2, Broker: "/run/exn/ds/4026532178.sock"}, false)
	b.WriteString("\n")
	writeSockets(&b, &control.Sockets{Node: 3}, false)
	b.WriteString("\n")
	writeSockets(&b, &control.Sockets{Broker: "/run/exn/ds/4026532179.sock"}, false)
	golden(t, "sockets.txt", b.String())
}

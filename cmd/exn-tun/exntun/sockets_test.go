package exntun

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"
)

func TestSocketsText(t *testing.T) {
	ap := netip.MustParseAddrPort
	var b bytes.Buffer
	none := new(moves)
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
	}}, none, true)
	b.WriteString("\n")
	writeSockets(&b, &control.Sockets{Node: 2, Broker: "/run/exn/ds/4026532178.sock"}, none, false)
	b.WriteString("\n")
	writeSockets(&b, &control.Sockets{Node: 3}, none, false)
	b.WriteString("\n")
	writeSockets(&b, &control.Sockets{Broker: "/run/exn/ds/4026532179.sock"}, none, false)
	golden(t, "sockets.txt", b.String())
}

// A connection that moves has its rates; of one that does not, the row says who waits for whom, and
// for how long, also after many looks.
func TestMoves(t *testing.T) {
	client, server := netip.MustParseAddrPort("10.2.0.1:40000"), netip.MustParseAddrPort("10.2.0.2:80")
	look := func(sent, received uint64) map[endKey]*connstats.Connection {
		return endsOf([]*control.Sockets{{Connections: []connstats.Connection{
			{Program: "c", PID: 7, Local: client, Remote: server, Mode: "direct", Sent: connstats.Traffic{DirectBytes: sent}, Returns: 4, DirectSince: time.Now().Add(-time.Minute)},
			{Program: "s", PID: 8, Local: server, Remote: client, Server: true, Mode: "direct", Received: connstats.Traffic{DirectBytes: received}},
		}}})
	}
	ofClient, ofServer := endKey{local: client, remote: server}, endKey{local: server, remote: client, server: true}
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		what           string
		now            map[endKey]*connstats.Connection
		client, server string
	}{
		{"it moves", look(5000, 4000), "|2.0 kB|0 B|1.0 kB|0 B|-|", "|0 B|1.5 kB|0 B|1.0 kB|-|"},
		{"not read", look(1000, 600), "|0 B|0 B|400 B|0 B|1h0m0s for s/8|", "|0 B|0 B|0 B|400 B|1h0m0s for this program|"},
		{"nothing to read", look(1000, 1000), "|0 B|0 B|0 B|0 B|1h0m0s for nobody|", ""},
	} {
		m := moves{before: look(1000, 1000), now: c.now, since: 2 * time.Second}
		if c.what != "it moves" {
			m.still = map[endKey]time.Time{ofClient: long, ofServer: long}
			m.before = c.now
		}
		if got := m.rowOf(ofClient); !strings.Contains(got, c.client) {
			t.Errorf("%s: client %q, want %q", c.what, got, c.client)
		}
		if got := m.rowOf(ofClient); !strings.HasSuffix(got, "|1m0s|4") {
			t.Errorf("%q does not end with times", got)
		}
		if got := m.rowOf(ofServer); !strings.Contains(got, c.server) {
			t.Errorf("%s: server %q, want %q", c.what, got, c.server)
		}
	}
}

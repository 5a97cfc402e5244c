package exntun

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"
)

// What moves most is first, then what waits to be read; a connection whose ends are both known is
// there once, and a line has 80 columns at most.
func TestTop(t *testing.T) {
	server := netip.MustParseAddrPort("[fd00:1111:2222:3333:4444:5555:6666:7777]:8080")
	look := func(scale uint64) map[endKey]*connstats.Connection {
		s := new(control.Sockets)
		for i, n := range []uint64{1 << 10, 1 << 20, 1 << 30} {
			client := netip.AddrPortFrom(netip.MustParseAddr("10.2.0.1"), uint16(40000+i))
			s.Connections = append(s.Connections,
				connstats.Connection{Program: "a-program-with-a-long-name", PID: i + 1, Local: client, Remote: server, Mode: "direct", Path: "shm",
					Sent: connstats.Traffic{DirectBytes: n * scale}},
				connstats.Connection{PID: 9, Local: server, Remote: client, Server: true, Mode: "direct", Received: connstats.Traffic{DirectBytes: n}})
		}
		return endsOf([]*control.Sockets{s})
	}
	for _, moving := range []bool{true, false} {
		before := look(2)
		if moving {
			before = look(1)
		}
		var b strings.Builder
		writeTop(&b, before, look(2), 2*time.Second)
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if len(lines) != 7 || lines[0] != "3 connections" {
			t.Fatalf("%q", lines)
		}
		for i, l := range lines[4:] {
			rate := []string{"536.9 MB", "524.3 kB", "512 B"}[i]
			if !strings.Contains(l, []string{"1.1 GB", "1.0 MB", "1.0 kB"}[i]) || strings.Contains(l, rate) != moving || len(l) > 80 {
				t.Errorf("line %d of %d columns, moving %v: %s", i, len(l), moving, l)
			}
		}
	}
}

package exntun

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"
)

// It is said of each connection of a process why it is not direct, and of one that does not move
// which end waits for which.
func TestExplain(t *testing.T) {
	client, server := netip.MustParseAddrPort("10.2.0.1:40000"), netip.MustParseAddrPort("10.2.0.2:80")
	amount := func(n uint64) connstats.Traffic { return connstats.Traffic{DirectBytes: n} }
	look := func(sent, received uint64) []*control.Sockets {
		return []*control.Sockets{{Connections: []connstats.Connection{
			{Program: "a\nb", PID: 7, Local: client, Remote: server, Mode: "direct", Path: "shm", Sent: amount(sent), Returns: 2, DirectSince: time.Now().Add(-time.Hour)},
			{Program: "plain", PID: 7, Local: client, Remote: client, Mode: "shadow", Reason: "no direct listener"},
		}}, {Connections: []connstats.Connection{
			{Program: "d", PID: 8, Local: server, Remote: client, Server: true, Mode: "direct", Path: "shm", Received: amount(received)},
		}}}
	}
	for _, c := range []struct {
		name                   string
		before, sent, received uint64
		want                   string
	}{
		{"moves", 1000, 3000, 3000, "sends 2.0 kB/s, receives 0 B/s"},
		{"its peer sleeps", 3000, 3000, 1000, "nothing moves: d[8] has not read 2.0 kB"},
		{"it is idle", 3000, 3000, 3000, "nothing moves: neither end sends"},
	} {
		var b strings.Builder
		if !writeExplain(&b, 7, endsOf(look(c.before, c.before)), look(c.sent, c.received)) {
			t.Fatal("nothing is said")
		}
		want := "a?b[7] 10.2.0.1:40000 -> 10.2.0.2:80: direct: both ends share memory for 1h0m0s; went back 2 times; sent 3.0 kB direct, 0 B tcp; received 0 B direct, 0 B tcp; " + c.want +
			"\nplain[7] 10.2.0.1:40000 -> 10.2.0.1:40000: tcp: no direct listener is known at the server's port\n"
		if b.String() != want {
			t.Errorf("%s:\n%s, want\n%s", c.name, b.String(), want)
		}
	}
	if writeExplain(new(strings.Builder), 9, nil, look(0, 0)) {
		t.Error("a process without connections")
	}
	if got, want := noConnection(os.Getpid()).Error(), fmt.Sprintf("process %d has no connection that a broker here knows: is it under exn-run?", os.Getpid()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const none = 2_000_000_000 // more than PID_MAX_LIMIT
	if got := noConnection(none).Error(); got != "no process 2000000000 runs here" {
		t.Errorf("no such process: %q", got)
	}
}

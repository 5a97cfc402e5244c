package exntun

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"exnet/directsockets/broker/connstats"
	"exnet/node/control"
)

// The containers that an agent serves have a line each, with their connections and what they have
// exchanged by direct sockets; where there is no agent, nothing is written.
func TestContainers(t *testing.T) {
	var b bytes.Buffer
	if writeContainers(&b, nil) || b.Len() > 0 {
		t.Errorf("without an agent: %s", &b)
	}
	direct, shadow := connstats.ModeDirect.String(), "shadow"
	total := func(sent, received uint64) *connstats.Total {
		return &connstats.Total{Sent: connstats.Amount{Bytes: sent}, Received: connstats.Amount{Bytes: received}}
	}
	if !writeContainers(&b, []*control.Sockets{
		{Whose: control.Whose{Name: "host"}, Direct: total(0, 0)},
		{Whose: control.Whose{Container: "0123456789ab", Name: "shop/db-0/redis"}, Direct: total(5_000_000_000, 7_000_000), Connections: []connstats.Connection{
			{Mode: direct, Sent: connstats.Traffic{ShadowBytes: 10}}, {Mode: direct}, {Mode: shadow, Received: connstats.Traffic{ShadowBytes: 2000}},
		}},
		{Whose: control.Whose{Container: "a|b"}, Direct: total(1, 2)},
	}) {
		t.Error("there are some")
	}
	golden(t, "containers.txt", b.String())
}

// A line has room in 80 columns, whatever a pod is called.
func TestContainersWidth(t *testing.T) {
	var b bytes.Buffer
	s := &control.Sockets{
		Whose:  control.Whose{Container: "0123456789ab", Name: "production/checkout-service-7c9d8f6b5-x2x9q/redis"},
		Direct: &connstats.Total{Sent: connstats.Amount{Bytes: 999_900_000_000}, Received: connstats.Amount{Bytes: 999_900_000_000}},
	}
	for range 2000 {
		s.Connections = append(s.Connections, connstats.Connection{Mode: connstats.ModeDirect.String(), Sent: connstats.Traffic{ShadowBytes: 499_900_000}})
	}
	writeContainers(&b, []*control.Sockets{s})
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(b.String(), "production/…2x9q/redis") {
		t.Error(b.String())
	}
}

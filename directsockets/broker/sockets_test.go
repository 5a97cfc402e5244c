package broker

import (
	"os"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
)

// TestStats has a client count, and the server show it.
func TestStats(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	c := dialClient(t, client.Config{Path: s.Path(), Program: "prog", Connections: 100})
	if got := s.Connections(); got == nil || len(got) != 0 {
		t.Errorf("%+v", got)
	}
	since := time.Unix(1700000000, 123)
	key := wire.Key{Client: ap("10.2.0.1:40000"), Server: ap("[fd00::2]:5201")}
	var entries []connstats.Entry
	for range 70 { // more than are read at a time
		entries = append(entries, c.Stats().Alloc(connstats.EntryInfo{Key: wire.Key{Client: ap("1.1.1.1:1"), Server: ap("1.1.1.2:2")}, Since: since.Add(time.Hour)}))
	}
	e := c.Stats().Alloc(connstats.EntryInfo{Key: key, Server: true, FD: 9, Since: since})
	for i := range e.Counters() {
		e.Counters()[i].Store(uint64(100 + i))
	}
	e.Set(connstats.ModeDemoted, connstats.WhyPeer)
	all := s.Connections()
	if len(all) != 71 {
		t.Fatalf("%d connections", len(all))
	}
	got := all[0]
	got.Since = got.Since.UTC()
	want := connstats.Connection{
		Program: "prog", PID: os.Getpid(), Local: key.Server, Remote: key.Client, Server: true, Mode: "demoted", Reason: "peer", Path: "tcp",
		Device: 5201 & 15, FD: 9, Since: since.UTC(), Why: connstats.WhyPeer, Entry: 70, Seq: 2, Heeds: true,
		Sent: connstats.Traffic{DirectBytes: 100, ShadowBytes: 102, VELO: 104, VELOLast: 105, RMAInfo: 106, RMAAvail: 107, Shutdown: 108, Demote: 109,
			ZeroCopyBytes: 122},
		Received: connstats.Traffic{DirectBytes: 101, ShadowBytes: 103, VELO: 110, VELOLast: 111, RMAInfo: 112, RMAAvail: 113, Shutdown: 114, Demote: 115,
			ZeroCopyBytes: 123},
		Returns: 115, RingUsed: 116, RingSize: 117, Sleeps: 118, WakeUps: 119, SpinHits: 120, SpinFails: 121,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, e := range entries {
		e.Free()
	}
	e.Set(connstats.ModeDirect, connstats.WhyNothing)
	if all = s.Connections(); len(all) != 1 || all[0].Mode != "direct" || all[0].Reason != "" || !all[0].Server {
		t.Errorf("%+v", all)
	}
	e.Free()
	e.Free()
	// The entry's next use has another number, and nothing of the one before.
	e = c.Stats().Alloc(connstats.EntryInfo{Key: key, FD: -1, Since: since})
	all = s.Connections()
	if len(all) != 1 || all[0].Seq != 4 || all[0].Sent != (connstats.Traffic{}) || all[0].FD != -1 || all[0].Local != key.Client || all[0].Mode != "shadow" {
		t.Errorf("%+v", all)
	}
	e.Free()
}

// TestShared adds up what clients have moved through memory, those that have ended included.
func TestShared(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	move := func(n uint64) *client.Client {
		c := dialClient(t, client.Config{Path: s.Path(), Program: "prog"})
		for _, to := range []string{"10.2.0.2:80", "10.2.0.3:80"} {
			e := c.Stats().Alloc(connstats.EntryInfo{Key: wire.Key{Client: ap("10.2.0.1:40000"), Server: ap(to)}})
			e.SetPath(connstats.PathMemory)
			e.Set(connstats.ModeDirect, connstats.WhyNothing)
			e.Counters()[0].Store(n)
		}
		return c
	}
	s.shared.met.addAddr(ap("10.2.0.2:80").Addr()) // and not to the other one: that is the client's invention
	sent := func() uint64 { return s.Shared()[ap("10.2.0.2:0").Addr()].Sent.Bytes }
	first := move(100)
	move(11)
	if n := sent(); n != 111 {
		t.Errorf("%d bytes, want 111", n)
	}
	first.Close()
	for end := time.Now().Add(3 * time.Minute); len(s.Connections()) != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client stays")
		}
	}
	if n := sent(); n != 111 {
		t.Errorf("%d bytes when a client has ended, want 111", n)
	}
	if n := len(s.Shared()); n != 1 {
		t.Errorf("%d addresses, one was met", n)
	}
}

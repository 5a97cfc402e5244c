package exnrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/directsockets/broker/wire"
	"exnet/internal/netns/netnstest"
)

// startBrokerAt runs a broker of exn-run until it ends by itself or by end.
func startBrokerAt(t *testing.T, path string, idle time.Duration) (ended <-chan error, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- serveBroker(ctx, broker.Config{Path: path}, idle, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-done:
		select {
		case <-ready: // there was another one, and this one has ended by now
			done <- err
		default:
			t.Fatal(err)
		}
	}
	return done, cancel
}

func dial(t *testing.T, path string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Config{Path: path, Program: "prog"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func wait(t *testing.T, c *client.Client) error {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	return c.Wait(ctx)
}

// What a program's statistics say comes through the tap, and the broker's service
// too.
func TestTap(t *testing.T) {
	netnstest.CheckFDs(t)
	path := filepath.Join(t.TempDir(), "ds.sock")
	ended, end := startBrokerAt(t, path, time.Minute)
	w := &watch{}
	defer w.close()
	tap, err := newTap(path, w.addFile)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, tap.path())
	if err := wait(t, c); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
	a := c.Listen(client.Socket{Conn: raw}, nil)
	defer a.Close()
	for end := time.Now().Add(3 * time.Minute); !c.Listener(port); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the broker does not know the listener")
		}
	}

	key := wire.Key{Client: netip.MustParseAddrPort("10.2.0.1:1000"), Server: netip.MustParseAddrPort("10.2.0.2:80")}
	since := time.Unix(1, 0)
	direct := c.Stats().Alloc(connstats.EntryInfo{Key: key, FD: 5, Since: since})
	key.Client = netip.MustParseAddrPort("[::1]:1001")
	tcp := c.Stats().Alloc(connstats.EntryInfo{Key: key, Server: true, FD: 6, Since: since.Add(time.Second)})
	tcp.Set(connstats.ModeTCP, connstats.WhyRule)
	var lines []string
	live := func(c connstats.Connection) { lines = append(lines, explain.Line(&c)) }
	tap.waitSeen()
	w.readAll(live)
	direct.Counters()[0].Store(12345678)
	direct.Counters()[4].Store(7)
	direct.SetPath(connstats.PathFabric)
	direct.Set(connstats.ModeDirect, connstats.WhyNothing)
	w.readAll(live)
	w.readAll(live)
	direct.Set(connstats.ModeDemoted, connstats.WhyPeer)
	w.readAll(live)
	direct.Free() // what was seen last stays
	w.readAll(live)
	want := []string{
		"10.2.0.1:1000 -> 10.2.0.2:80: tcp",
		"10.2.0.2:80 <- [::1]:1001: tcp: a rule says tcp",
		"10.2.0.1:1000 -> 10.2.0.2:80: direct: through the fabric, as the client's node asks (exn-tun up --direct)",
		"10.2.0.1:1000 -> 10.2.0.2:80: direct, then tcp: the peer has ended or gone back to TCP",
	}
	for i := range max(len(want), len(lines)) {
		if i >= len(lines) || i >= len(want) || !strings.HasPrefix(lines[i], "prog[") || !strings.HasSuffix(lines[i], want[i]) {
			t.Fatalf("told %q, want %q", lines, want)
		}
	}
	all := w.listConnections()
	if len(all) != 2 || explain.Amounts(all[1]) != "" || explain.Amounts(all[0]) != "; sent 12.3 MB direct, 0 B tcp; received 0 B direct, 0 B tcp" || formatCounters(all[0]) != "tx VELO 7" {
		t.Errorf("at the end: %+v", all)
	}
	if got, want := summaryLine(all, w.lost, w.countProcesses()), "2 connections in 1 process: 1 direct, 1 tcp (1: a rule says tcp)"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	var report bytes.Buffer
	if err := writeReport(&report, all); err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := json.NewDecoder(&report).Decode(&r); err != nil || r.Path != "direct" || r.Why != 9 || r.Sent.DirectBytes != 12345678 || r.Program != "prog" {
		t.Errorf("%v, %+v", err, r)
	}

	// Places that are used anew: the last is seen, and the others are known of.
	for range 3 {
		direct = c.Stats().Alloc(connstats.EntryInfo{Key: key, FD: 5, Since: since})
		direct.Free()
	}
	c.Stats().Alloc(connstats.EntryInfo{Key: key, FD: 5, Since: since})
	w.readAll(nil)
	if len(w.listConnections()) != 3 || w.lost != 3 {
		t.Errorf("%d connections seen, %d lost, want 3, 3", len(w.listConnections()), w.lost)
	}

	a.Close()
	c.Close()
	if err := tap.close(); err != nil {
		t.Error(err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The tap is for who knows its name, which is written nowhere but in the environment
// of the programs.
func TestTapIsSecret(t *testing.T) {
	tap, err := newTap("", func(_ string, _ int, f *os.File) { f.Close() })
	if err != nil {
		t.Fatal(err)
	}
	defer tap.close()
	info, err := os.Stat(tap.dir)
	if err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("its directory has mode %v (%v), want 0711", info.Mode(), err)
	}
	known, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(known), tap.dir) || strings.Contains(string(known), tap.name) {
		t.Errorf("/proc/net/unix tells the name %q", tap.name)
	}
}

// What a program says about itself does not reach the terminal as it is.
func TestTapDistrusts(t *testing.T) {
	netnstest.CheckFDs(t)
	w := &watch{}
	defer w.close()
	tap, err := newTap("", w.addFile)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Config{Path: tap.path(), Program: "\x1b]0;you\a\nfoe"})
	if err != nil {
		t.Fatal(err)
	}
	e := c.Stats().Alloc(connstats.EntryInfo{Since: time.Unix(1, 0)})
	e.Set(connstats.ModeTCP, connstats.WhyNoBroker)
	_ = wait(t, c)
	c.Close()
	tap.waitSeen()
	if err := tap.close(); err != nil {
		t.Error(err)
	}

	// Nor does exn-run remember more than it can bear.
	w.conns = make(map[seenKey]*connstats.Connection)
	for i := range maxConnections {
		w.conns[seenKey{nil, i, 2}] = &connstats.Connection{}
	}
	w.readAll(nil)
	if len(w.conns) != maxConnections || w.lost != 1 {
		t.Errorf("%d connections remembered, %d lost, want %d, 1", len(w.conns), w.lost, maxConnections)
	}
	w.conns = nil
	w.readAll(nil)
	if all := w.listConnections(); len(all) != 1 || all[0].Program != "?]0;you??foe" {
		t.Errorf("seen: %+v", all)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	full := &watch{tables: make([]*watched, maxProcesses)}
	full.addFile("more", 1, null)
	if got := full.countProcesses(); got != maxProcesses+1 || len(full.tables) != maxProcesses {
		t.Errorf("%d processes, %d tables", got, len(full.tables))
	}
}

// Without a broker a program is told so, and its statistics are seen all the same,
// even if it has ended by then.
func TestTapWithoutBroker(t *testing.T) {
	netnstest.CheckFDs(t)
	w := &watch{}
	defer w.close()
	tap, err := newTap("", w.addFile)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, tap.path())
	e := c.Stats().Alloc(connstats.EntryInfo{Since: time.Unix(1, 0)})
	e.Set(connstats.ModeTCP, connstats.WhyNoBroker)
	if err := wait(t, c); !errors.Is(err, client.ErrNoBroker) {
		t.Errorf("the client is told %v", err)
	}
	c.Close()
	tap.waitSeen()
	w.readAll(nil)
	if all := w.listConnections(); len(all) != 1 || explain.Choice(all[0]) != "tcp: no broker" {
		t.Errorf("seen: %+v", all)
	}
	if err := tap.close(); err != nil {
		t.Error(err)
	}
}

// A broker may refuse a program and hang up before the program's HELLO comes: the program is told
// what the broker has said. Of one that says nothing then, it is not told another version.
func TestTapBrokerFaster(t *testing.T) {
	netnstest.CheckFDs(t)
	for name, tt := range map[string]struct {
		says wire.Reason // 0: nothing
		want wire.Reason
	}{"full": {wire.TooMany, wire.TooMany}, "nothing": {0, wire.Unreachable}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ds.sock")
			ln, err := net.ListenUnix(client.Network, &net.UnixAddr{Name: path, Net: client.Network})
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			tap, err := newTap(path, func(_ string, _ int, f *os.File) { f.Close() })
			if err != nil {
				t.Fatal(err)
			}
			defer tap.close()
			program, err := net.DialUnix(client.Network, nil, &net.UnixAddr{Name: tap.path(), Net: client.Network})
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			broker, err := ln.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			if tt.says != 0 {
				b, err := wire.Message{Type: wire.Refused, Reason: tt.says}.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := broker.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			broker.Close()
			hello, err := wire.Greeting("prog").AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := program.Write(hello); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, wire.MaxLen)
			n, err := program.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			var m wire.Message
			if err := m.UnmarshalBinary(b[:n]); err != nil || m.Type != wire.Refused || m.Reason != tt.want {
				t.Errorf("the program is told %v, reason %d instead of %d: %v", m.Type, m.Reason, tt.want, err)
			}
		})
	}
}

// A broker stays for its clients, and for those that it was told to keep to.
func TestServeBroker(t *testing.T) {
	netnstest.CheckFDs(t)
	path := filepath.Join(t.TempDir(), "ds.sock")
	old := filepath.Join(filepath.Dir(path), "killed"+client.KeepSuffix)
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const idle = 200 * time.Millisecond
	ended, _ := startBrokerAt(t, path, idle)
	stays := func(what string) {
		t.Helper()
		select {
		case err := <-ended:
			t.Fatalf("%s: it has ended, %v", what, err)
		case <-time.After(2 * idle):
		}
	}
	c := dial(t, path)
	for range 20 {
		if wait(t, c) == nil {
			break
		}
		c.Close() // on a busy machine the broker has ended before
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		ended, _ = startBrokerAt(t, path, idle)
		c = dial(t, path)
	}
	if !c.Connected() {
		t.Fatal("not connected")
	}
	stays("a client")
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		t.Errorf("what a killed broker left: %v, %q", err, left)
	}
	other, _ := startBrokerAt(t, path, idle)
	if err := <-other; err != nil {
		t.Errorf("a second one: %v", err)
	}
	p := exnRun(t, "--", "cat")
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Env = append(p.Env, client.PathEnv+"="+path)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	comm := fmt.Sprintf("/proc/%d/comm", p.Process.Pid)
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
		if name, _ := os.ReadFile(comm); string(name) == "cat\n" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not become cat")
		}
	}
	c.Close()
	stays("a program that exn-run became")
	stdin.Close()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("it stays without clients")
	}
	if kept, err := keepBroker(path); !kept || err != nil {
		t.Error("its socket is left")
	}
}

// What carries a direct connection is said with the reason.
func TestPathsSaid(t *testing.T) {
	for via, want := range map[connstats.Path]string{
		connstats.PathMemory: "direct: both ends share memory",
		connstats.PathFabric: "direct: through the fabric, as the client's node asks (exn-tun up --direct)",
		connstats.PathRDMA:   "direct: through the fabric, as RDMA hardware joins the hosts",
	} {
		c := connstats.Connection{Mode: connstats.ModeDirect.String(), Via: via, Sent: connstats.Traffic{DirectBytes: 1}}
		if got := explain.Choice(&c); got != want {
			t.Errorf("%d: %s", via, got)
		}
	}
	c := connstats.Connection{Mode: connstats.ModeTCP.String(), Why: connstats.WhyIdle}
	if got := explain.Choice(&c); got != "tcp: both ends are ready for direct, and nothing has moved since" {
		t.Error(got)
	}
}

// A connection that is ready for direct when it ends, and has moved nothing so, has a reason, also
// if it is seen when it is closed.
func TestReadyAndIdle(t *testing.T) {
	for _, mode := range []connstats.Mode{connstats.ModeDirect, connstats.ModeClosed} {
		c := &connstats.Connection{Mode: mode.String(), Via: connstats.PathMemory}
		w := &watch{conns: map[seenKey]*connstats.Connection{{}: c}}
		var report bytes.Buffer
		if err := writeReport(&report, w.listConnections()); err != nil {
			t.Fatal(err)
		}
		var r Record
		if err := json.NewDecoder(&report).Decode(&r); err != nil || r.Path != "tcp" || r.Reason != connstats.WhyIdle.String() {
			t.Errorf("%v: %v, %+v", mode, err, r)
		}
		if got, want := r.Choice, "tcp: both ends are ready for direct, and nothing has moved since"; got != want {
			t.Errorf("%v: %q, want %q", mode, got, want)
		}
		if got, want := summaryLine(w.listConnections(), 0, 1), "1 connection in 1 process: 0 direct, 1 tcp (1: both ends are ready for direct, and nothing has moved since)"; got != want {
			t.Errorf("%v: summary %q, want %q", mode, got, want)
		}
	}
}

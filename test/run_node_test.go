package e2e

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"exnet/cmd/exn-run/exnrun"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/daemon"
)

// startDaemon runs a node as "exn-tun up" does, until the test ends.
func startDaemon(t *testing.T, dir string, ns *netns.NS, addr string) *daemon.Daemon {
	t.Helper()
	d, _ := startDaemonStop(t, dir, ns, addr)
	return d
}

// startDaemonStop is startDaemon with what ends it before.
func startDaemonStop(t *testing.T, dir string, ns *netns.NS, addr string) (_ *daemon.Daemon, stop func()) {
	t.Helper()
	d, err := daemon.Start(daemon.Config{Dir: dir, NetNS: ns.Path(), Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, Fair: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return d, stop
}

// Over a fabric: programs in the namespaces of two nodes, where exn-run takes them,
// with rules, and with a peer that is not under exn-run.
func TestRootRunNodes(t *testing.T) {
	needRun(t, "iperf3")
	checkLeaks(t)
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	dir := t.TempDir()
	spaces := []*netns.NS{netnstest.New(t), netnstest.New(t)}
	nodes := []*daemon.Daemon{startDaemon(t, dir, spaces[0], "10.2.0.1/24"), startDaemon(t, dir, spaces[1], "10.2.0.2/24")}
	eventually(t, func() error {
		for i, n := range nodes {
			s, err := n.Status()
			if err != nil {
				return err
			}
			if len(s.Peers) != 1 || s.Peers[0].State != "up" {
				return errors.New("node " + strconv.Itoa(s.Node) + " has no peer")
			}
			if err := spaces[i].Do(func() error { _, err := client.Find(); return err }); err != nil {
				return err
			}
		}
		return nil
	})
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	status, err := nodes[0].Status()
	if err != nil {
		t.Fatal(err)
	}
	// The first node by its ID, the second by its namespace.
	names := []string{strconv.Itoa(status.Node), spaces[1].Path()}
	const size = 256 << 20
	out := sharedDir(t)
	run := func(i int, report string, flags []string, argv ...string) *process {
		flags = append([]string{exnRun, "--dir", dir, "--node", names[i], "--report", report}, flags...)
		if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" {
			flags = append(flags, "--library", library)
		}
		return startIn(t, here, nil, slices.Concat(flags, []string{"--"}, argv)...)
	}
	rules := filepath.Join(out, "rules")
	write(t, rules, "tcp iperf* client 10.2.0.2 5201 # not this one\n")
	for _, tt := range []struct {
		name   string
		plain  bool // the server is not under exn-run
		flags  []string
		direct bool
		why    connstats.Why
	}{
		{"direct", false, nil, true, connstats.WhyNothing},
		{"rule", false, []string{"--rules", rules}, false, connstats.WhyRule},
		{"plain peer", true, nil, false, connstats.WhyNoListener},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report := filepath.Join(out, "client")
			var s *process
			if tt.plain {
				s = startIn(t, spaces[1], nil, "iperf3", "-s", "-1")
			} else {
				s = run(1, filepath.Join(out, "server"), nil, "iperf3", "-s", "-1")
			}
			s.listens(t, iperfPort)
			c := run(0, report, tt.flags, "iperf3", "-c", "10.2.0.2", "-n", strconv.Itoa(size))
			c.wait(t)
			s.wait(t)
			l := &local{exnRun: exnRun, reports: []string{report}}
			var most exnrun.Record
			for _, r := range l.connections(t) {
				if r.Sent.DirectBytes+r.Sent.ShadowBytes >= most.Sent.DirectBytes+most.Sent.ShadowBytes {
					most = r
				}
			}
			if got := most.Path == "direct"; got != tt.direct || most.Why != int(tt.why) || tt.direct && most.Sent.DirectBytes == 0 {
				t.Errorf("the connection was %+v", most)
			}
		})
	}
}

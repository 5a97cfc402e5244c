package e2e

import (
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/node"
)

// TCP outlives it when an interface goes down and up under load.
func TestRootDownUpUnderLoad(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "iperf3")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		l.excuse("ipstack.rx_drop_host", "exteth.rx_refused", "rma.failed")
		a, b := l.hosts[0], l.hosts[1]
		eachFamily(t, func(t *testing.T, fam family) {
			before := l.total()
			wait := a.startIperf(t, b, fam.of(b).String(), iperfPort, "-n", "256M", "--bidir")
			for _, h := range []*host{a, b} {
				// Not before the data flows.
				checkGrowth(t, before, l.total, atLeast("exteth.rx_rendezvous", 100))
				h.run(t, "ip", "link", "set", ifname, "down")
				h.run(t, "ip", "link", "set", ifname, "up")
				before = l.total()
			}
			if r := wait(); r.End.SumReceived.Bytes == 0 || r.End.ReverseReceive.Bytes == 0 {
				t.Errorf("nothing received: %+v", r.End)
			}
		})
	})
}

// Nodes can be taken down while programs send as much as they can.
func TestRootCloseUnderLoad(t *testing.T) {
	longtest.Skip(t)
	need(t, "iperf3", "ping")
	for _, noFast := range []bool{false, true} {
		checkLeaks(t)
		c, err := node.StartCluster(node.ClusterConfig{Nodes: 3, Node: node.Config{NoFastPath: noFast}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		var hosts []*host
		for i := range c.Nodes {
			hosts = append(hosts, &host{i: i, ns: c.Namespace(i)})
		}
		var programs []*process
		for i, a := range hosts {
			b := hosts[(i+1)%len(hosts)]
			server := b.start(t, "iperf3", "-s", "-p", iperfPort)
			server.listens(t, iperfPort)
			programs = append(programs, server,
				a.start(t, "iperf3", "-c", family(4).of(b).String(), "-p", iperfPort, "-t", "60", "--bidir"),
				a.start(t, "ping", "-f", family(6).of(b).String()),
				a.start(t, "ping", "-b", "-i", "0.002", "10.2.0.255"))
		}
		for _, n := range c.Nodes {
			eventually(t, func() error {
				return atLeast("frames by rendezvous", 100)(counters{"frames by rendezvous": n.Interface.Stats().Port.RxRendezvous})
			})
		}
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("closed in %v", time.Since(start).Round(time.Millisecond))
		for _, p := range programs {
			p.stop()
		}
	}
}

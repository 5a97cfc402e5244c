package e2e

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
)

// traffic are the counters of frames, messages and work that are no loss. Every
// other counter must be 0 when a test ends, unless the test explains it.
func traffic() map[string]bool {
	return map[string]bool{
		"ipstack.fast_tx":     true,
		"ipstack.slow_tx":     true,
		"ipstack.netstack_tx": true,
		"ipstack.fast_rx":     true,
		"ipstack.slow_rx":     true,
		"ipstack.netstack_rx": true,

		"ipstack.membership_reports": true, // of IGMP and MLD, which end in the node
		"ipstack.announcements":      true,

		"exn.tx_stops":  true, // back-pressure
		"exn.tx_stalls": true, // more of it; a drop is exn.tx_stalled
		"exn.tx_away":   true, // waited for a link

		"exteth.tx_eager":       true,
		"exteth.tx_rendezvous":  true,
		"exteth.tx_group":       true,
		"exteth.tx_bytes":       true,
		"exteth.tx_again":       true, // back-pressure
		"exteth.tx_no_buffer":   true, // back-pressure
		"exteth.rx_eager":       true,
		"exteth.rx_rendezvous":  true,
		"exteth.rx_group":       true,
		"exteth.rx_bytes":       true,
		"exteth.rx_no_transfer": true, // back-pressure

		"etherhost.tx":                 true,
		"etherhost.rx":                 true,
		"etherhost.membership_reports": true,
		"exn.tx_flooded":               true,

		"velo.sent":             true,
		"velo.multicasts":       true,
		"velo.received":         true,
		"velo.void":             true, // half-done multicast, taken back and tried again
		"velo.multicast_absent": true, // a node that has no exn0 yet
		"velo.no_credit":        true, // back-pressure
		"velo.credit_events":    true,
		"velo.interrupts":       true,

		"rma.gets":       true,
		"rma.get_bytes":  true,
		"rma.served":     true,
		"rma.interrupts": true,

		"atu.regions": true, // a gauge
	}
}

// counters are the counters of one or more nodes, by name.
type counters map[string]uint64

// counters returns the counters of a host's node, from top to bottom.
func (h *host) counters() counters {
	n := h.lab.Nodes[h.i]
	s := n.Interface.Stats()
	c := make(counters)
	add := func(layer string, all iter.Seq2[string, uint64]) {
		for name, v := range all {
			c[layer+name] = v
		}
	}
	if n.Stack != nil {
		add("ipstack.", n.Stack.Stats().All())
	}
	if n.Ether != nil {
		add("etherhost.", n.Ether.Stats().All())
	}
	add("exn.", s.Counters.All())
	add("exteth.", s.Port.All())
	add("", s.NIC.All()) // named after its units
	return c
}

// total returns the counters of all nodes together.
func (l *lab) total() counters {
	sum := make(counters)
	for _, h := range l.hosts {
		for name, v := range h.counters() {
			sum[name] += v
		}
	}
	return sum
}

// since returns how much the counters have grown.
func (c counters) since(before counters) counters {
	grown := make(counters)
	for name, v := range c {
		grown[name] = v - before[name]
	}
	return grown
}

// explain tells the lab of counters that the test makes grow although they are
// not mere traffic.
func (l *lab) explain(names ...string) {
	for _, name := range names {
		l.explained[name] = true
	}
}

// excuse is explain for counters that grow if it so happens.
func (l *lab) excuse(names ...string) {
	for _, name := range names {
		l.explained[name] = false
	}
}

// checkGrowth fails the test unless the counters come to grow from before as
// want says. Some are counted only after the packet has been delivered.
func checkGrowth(t *testing.T, before counters, now func() counters, want func(grown counters) error) {
	t.Helper()
	eventually(t, func() error { return want(now().since(before)) })
}

// atLeast is for checkGrowth.
func atLeast(name string, n uint64) func(counters) error {
	return func(grown counters) error {
		if grown[name] < n {
			return fmt.Errorf("%s: %d, want at least %d", name, grown[name], n)
		}
		return nil
	}
}

// checkCounters fails the test unless everything that was sent arrived, and all
// that was dropped is explained.
func (l *lab) checkCounters(t *testing.T) {
	t.Helper()
	if t.Failed() { // it did not do all that it was to do
		l.logCounters(t)
		return
	}
	// Frames may be under way: the kernel sends some on its own.
	eventually(t, l.allArrived)
	eventually(t, l.allExplained)
	traffic, total := traffic(), l.total()
	for _, name := range slices.Sorted(maps.Keys(total)) {
		_, explained := l.explained[name]
		if v := total[name]; v != 0 && !traffic[name] && !explained {
			t.Errorf("%s is %d, without a reason (if it is no loss, add it to traffic)", name, v)
		}
	}
	if bad := l.Loop.Stats().Bad; bad != 0 {
		t.Errorf("txloop: %d packets of the kernel could not be read", bad)
	}
	if t.Failed() {
		l.logCounters(t)
	}
}

// allExplained looks for what the test said that it causes.
func (l *lab) allExplained() error {
	total := l.total()
	for name, must := range l.explained {
		if v, ok := total[name]; !ok {
			return fmt.Errorf("there is no counter %s", name)
		} else if must && v == 0 {
			return fmt.Errorf("%s is 0: the test did not do what it says", name)
		}
	}
	return nil
}

// allArrived compares what was sent with what was received.
func (l *lab) allArrived() error {
	c := l.total()
	for _, pair := range [][2]string{
		{"exteth.tx_eager", "exteth.rx_eager"},
		{"exteth.tx_rendezvous", "exteth.rx_rendezvous"},
		{"rma.gets", "rma.served"},
	} {
		// A rendezvous frame that the host refused was sent nevertheless.
		if sent, got := c[pair[0]], c[pair[1]]; sent != got && c["exteth.rx_refused"] == 0 {
			return fmt.Errorf("%s is %d, but %s is %d", pair[0], sent, pair[1], got)
		}
	}
	if sent, got := c["velo.sent"], c["velo.received"]+c["velo.void"]; sent != got {
		return fmt.Errorf("%d VELO messages were sent, %d received", sent, got)
	}
	return nil
}

// checkPath fails the test unless the packets took the path that it is about.
func (l *lab) checkPath(t *testing.T) {
	t.Helper()
	c := l.total()
	fastTx, fastRx := c["ipstack.fast_tx"], c["ipstack.fast_rx"]
	slowTx, slowRx := c["ipstack.slow_tx"], c["ipstack.slow_rx"]
	if l.fast && (fastTx == 0 || fastRx == 0) {
		t.Errorf("no packet took the fast path: sent %d, received %d", fastTx, fastRx)
	}
	if !l.fast && (fastTx+fastRx != 0 || slowTx == 0 || slowRx == 0) {
		t.Errorf("sent %d packets by the fast path and %d by netstack, received %d and %d; want all by netstack",
			fastTx, slowTx, fastRx, slowRx)
	}
}

// logCounters shows every counter that is not 0.
func (l *lab) logCounters(t *testing.T) {
	t.Helper()
	for _, h := range l.hosts {
		c := h.counters()
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(c)) {
			if c[name] != 0 {
				fmt.Fprintf(&b, "\n  %-32s %12d", name, c[name])
			}
		}
		t.Logf("%v:%s", l.Nodes[h.i], &b)
	}
	t.Logf("txloop: %+v", l.Loop.Stats())
}

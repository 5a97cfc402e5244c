package e2e

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/node"
	"exnet/test/testlab"
)

// Every node reaches every other one, all at the same time.
func TestRootNodes(t *testing.T) {
	longtest.Skip(t)
	need(t, "iperf3", "ping")
	const nodes, size = 3, 8 << 20
	eachPath(t, node.ClusterConfig{Nodes: nodes}, func(t *testing.T, l *lab) {
		eachFamily(t, func(t *testing.T, fam family) {
			before := l.total()
			var pings []*process
			var streams []func() iperfResult
			for _, a := range l.hosts {
				for _, b := range l.hosts {
					if a == b {
						continue
					}
					to, port := fam.of(b).String(), strconv.Itoa(5000+a.i)
					pings = append(pings, a.start(t, append(pingArgs(5, 200), to)...))
					streams = append(streams, a.startIperf(t, b, to, port, "-n", strconv.Itoa(size)))
				}
			}
			var received uint64
			for _, wait := range streams {
				r := wait()
				if r.End.SumReceived.Bytes == 0 {
					t.Errorf("nothing received: %+v", r.End)
				}
				received += r.End.SumReceived.Bytes
			}
			for _, p := range pings {
				p.wait(t)
			}
			checkGrowth(t, before, l.total, atLeast("rma.get_bytes", received))
		})
	})
}

// One node alone has an interface that nobody answers on.
func TestRootOneNode(t *testing.T) {
	longtest.Skip(t)
	need(t, "ping")
	l := newLab(t, node.ClusterConfig{Nodes: 1})
	l.explain("ipstack.tx_drop_unreachable", "ipstack.netstack_tx_errors", "ipstack.icmp_errors")
	a := l.hosts[0]
	eachFamily(t, func(t *testing.T, fam family) { a.ping(t, fam.of(a).String(), 1, 56) })
	if err := a.dial(node.Addr4(1).Addr()); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("got %v, want %v", err, syscall.EHOSTUNREACH)
	}
}

// Who asks for an interface or a node that is elsewhere hears where it is.
func TestRootNodeElsewhere(t *testing.T) {
	longtest.Skip(t)
	needRun(t)
	ns, bin, home := netnstest.New(t), t.TempDir(), t.TempDir()
	if err := testlab.Into(bin, "exnet/cmd/exn-tun", "exnet/cmd/exn-run"); err != nil {
		t.Fatal(err)
	}
	env := []string{"env", "XDG_RUNTIME_DIR=" + home}
	up := append(env, bin+"/exn-tun", "up", "--fair", "--fabric", "one", "--dir", home+"/exn/one", "--node", "7")
	startIn(t, ns, nil, up...).says(t, "is up")
	for _, c := range []struct{ args, want string }{
		{"exn-tun up --fair --fabric two --dir " + home + "/exn/two", "node 7 of fabric one, as exn0: end it with exn-tun down --dir " + home + "/exn/one --node 7"},
		{"exn-run --node 7 --fabric two -- true", "node 7 is not running in fabric two: there is one in fabric one"},
		{"exn-run --node 8 --fabric one --dir " + home + "/exn/one -- true", "node 8 is not running in fabric one: start it with exn-tun up"},
	} {
		out, err := runIn(t, ns, nil, append(slices.Clone(env), strings.Fields(bin+"/"+c.args)...)...)
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, %q; want %q", c.args, err, out, c.want)
		}
	}
}

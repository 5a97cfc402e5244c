package e2e

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/mtu"
	"exnet/node"
)

// bulk sends some MB over TCP.
func bulk(t *testing.T, from, to *host, addr netip.Addr, options ...string) {
	t.Helper()
	const size = 8 << 20
	r := from.iperf(t, to, addr.String(), iperfPort, append(options, "-n", strconv.Itoa(size))...)
	if r.End.SumSent.Bytes < size || r.End.SumReceived.Bytes == 0 {
		t.Errorf("%q: sent %d bytes, received %d, want %d", options, r.End.SumSent.Bytes, r.End.SumReceived.Bytes, size)
	}
}

func TestRootMTU(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "iperf3", "ping")
	for _, size := range []int{1500, 9000, int(mtu.Default)} {
		t.Run(fmt.Sprintf("mtu=%d", size), func(t *testing.T) {
			eachPath(t, node.ClusterConfig{Node: node.Config{MTU: mtu.Network(size)}}, func(t *testing.T, l *lab) {
				a, b := l.hosts[0], l.hosts[1]
				if got := a.link(t).MTU; got != size {
					t.Errorf("ip says MTU %d, want %d", got, size)
				}
				eachFamily(t, func(t *testing.T, fam family) {
					to := fam.of(b).String()
					fits := size - fam.ipLen() - icmpLen
					a.ping(t, to, 3, fits, "-M", "do")
					// ping itself knows the largest IPv4 packet.
					if fits+1+icmpLen+fam.ipLen() <= int(mtu.Default) || fam == 6 {
						a.pingSays(t, to, fits+1, "message too long", "-M", "do")
					}
					a.ping(t, to, 3, min(3*size, 60000)) // in fragments, where it does not fit
					bulk(t, a, b, fam.of(b))
				})
			})
		})
	}
}

// A user may raise the MTU of exn0 beyond that of the fabric. Then the packets
// that do not fit are fragmented where that is allowed, and otherwise the kernel
// learns the MTU of the path from an ICMP error.
func TestRootMTURaised(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "iperf3", "ping")
	const fabric, raised = 1500, 9000
	eachPath(t, node.ClusterConfig{Node: node.Config{MTU: fabric}}, func(t *testing.T, l *lab) {
		l.explain("ipstack.tx_drop_too_big", "ipstack.icmp_errors")
		a, b := l.hosts[0], l.hosts[1]
		for _, h := range l.hosts {
			h.run(t, "ip", "link", "set", ifname, "mtu", strconv.Itoa(raised))
		}
		a.ping(t, family(4).of(b).String(), 3, 4000, "-M", "dont")
		eachFamily(t, func(t *testing.T, fam family) {
			to := fam.of(b).String()
			a.pingSays(t, to, 4000, pick(fam, "Frag needed and DF set (mtu = 1500)", "Packet too big: mtu=1500"), "-M", "do")
			if out := a.run(t, "ip", "route", "get", to); !strings.Contains(out, "mtu 1500") {
				t.Errorf("the kernel did not learn the MTU:\n%s", out)
			}
			a.ping(t, to, 1, fabric-fam.ipLen()-icmpLen, "-M", "do")
			bulk(t, b, a, fam.of(a)) // b has learned nothing yet
		})
	})
}

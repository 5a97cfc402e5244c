package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"exnet/node"
)

// tcpdump sees the packets on both ends, with their addresses.
func TestRootCapture(t *testing.T) {
	need(t, "ping", "tcpdump")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		eachFamily(t, func(t *testing.T, fam family) {
			const n = 3
			// Echo requests and their answers, and nothing that happens to pass.
			filter := pick(fam, "icmp[icmptype] == icmp-echo or icmp[icmptype] == icmp-echoreply",
				"icmp6 and (ip6[40] == 128 or ip6[40] == 129)")
			var captures []*process
			for _, h := range l.hosts {
				p := h.start(t, "tcpdump", "-i", ifname, "-n", "-l", "--immediate-mode", "-c", strconv.Itoa(2*n), filter)
				p.says(t, "listening on "+ifname)
				captures = append(captures, p)
			}
			const size = 1000
			a.ping(t, fam.of(b).String(), n, size)
			proto := pick(fam, "IP", "IP6")
			icmp := pick(fam, "ICMP", "ICMP6,")
			for i, p := range captures {
				out := p.wait(t)
				for _, line := range []string{
					fmt.Sprintf("%s %v > %v: %s echo request", proto, fam.of(a), fam.of(b), icmp),
					fmt.Sprintf("%s %v > %v: %s echo reply", proto, fam.of(b), fam.of(a), icmp),
				} {
					if got := strings.Count(out, line); got != n {
						t.Errorf("node %d: %d times %q, want %d\n%s", 1+i, got, line, n, out)
					}
				}
				if got := strings.Count(out, fmt.Sprintf("length %d", size+icmpLen)); got != 2*n {
					t.Errorf("node %d: %d packets of the right length, want %d\n%s", 1+i, got, 2*n, out)
				}
			}
		})
	})
}

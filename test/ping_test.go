package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/node"
)

// ping sends n echo requests of size bytes of payload, all of which must be
// answered.
func (h *host) ping(t *testing.T, to string, n, size int, options ...string) string {
	t.Helper()
	return h.run(t, slices.Concat(pingArgs(n, size), options, []string{to})...)
}

// pingArgs are the arguments of ping but for the destination. All requests leave
// at once (-l), and ping waits for late answers as long as for the first one
// (-W) or between requests (-i).
func pingArgs(n, size int) []string {
	return []string{"ping", "-n", "-c", strconv.Itoa(n), "-l", strconv.Itoa(n), "-i", "10", "-W", "10", "-s", strconv.Itoa(size)}
}

// pingSays runs ping until it has written want.
func (h *host) pingSays(t *testing.T, to string, size int, want string, options ...string) {
	t.Helper()
	p := h.start(t, slices.Concat([]string{"ping", "-n", "-i", "0.05", "-s", strconv.Itoa(size)}, options, []string{to})...)
	p.says(t, want)
	p.stop()
}

// Lengths of headers, for sizes on the edge between the ways of a frame.
const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	icmpLen     = 8
)

// ipLen is the length of an IP header without options.
func (f family) ipLen() int { return pick(f, ipv4Len, ipv6Len) }

func TestRootPing(t *testing.T) {
	need(t, "ping")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		eachFamily(t, func(t *testing.T, fam family) {
			a, b := l.hosts[0], l.hosts[1]
			to := fam.of(b).String()
			a.ping(t, to, 1, 56) // resolves the neighbour
			threshold := l.Nodes[0].Interface.EagerThreshold()
			edge := threshold - ethernetLen - fam.ipLen() - icmpLen
			for _, size := range []int{0, 56, edge, edge + 1, 1472, 8972, 60000} {
				t.Run(fmt.Sprintf("size=%d", size), func(t *testing.T) {
					const n = 3
					before := l.total()
					out := a.ping(t, to, n, size)
					if got := strings.Count(out, "bytes from "+to); got != n {
						t.Errorf("%d answers, want %d\n%s", got, n, out)
					}
					if strings.Contains(out, "DUP") {
						t.Errorf("duplicates:\n%s", out)
					}
					// Request and answer have the same size. Neighbour
					// discovery may add eager frames, nothing adds others.
					wantEager, wantRendezvous := uint64(2*n), uint64(0)
					if size > edge {
						wantEager, wantRendezvous = 0, 2*n
					}
					checkGrowth(t, before, l.total, func(c counters) error {
						if c["exteth.rx_eager"] < wantEager || c["exteth.rx_rendezvous"] != wantRendezvous {
							return fmt.Errorf("%d frames by rendezvous and %d eagerly, want %d and at least %d",
								c["exteth.rx_rendezvous"], c["exteth.rx_eager"], wantRendezvous, wantEager)
						}
						return nil
					})
				})
			}
		})
		t.Run("link-local", func(t *testing.T) {
			for _, a := range l.addrs(t, 1) {
				if a.IsLinkLocalUnicast() {
					l.hosts[0].ping(t, a.String()+"%"+ifname, 3, 56)
					return
				}
			}
			t.Error("no link-local address")
		})
		t.Run("own address", func(t *testing.T) {
			eachFamily(t, func(t *testing.T, fam family) { l.hosts[0].ping(t, fam.of(l.hosts[0]).String(), 1, 56) })
		})
	})
}

// Every other node answers a broadcast or multicast, and the frame leaves once.
func TestRootPingGroup(t *testing.T) {
	longtest.Skip(t)
	need(t, "ping")
	eachPath(t, node.ClusterConfig{Nodes: 4}, func(t *testing.T, l *lab) {
		for _, h := range l.hosts {
			netnstest.SetSysctl(t, h.ns, "ipv4/icmp_echo_ignore_broadcasts", "0")
		}
		for _, tt := range []struct {
			name    string
			fam     family
			to      string
			options []string
		}{
			{"broadcast of the network", 4, "10.2.0.255", []string{"-b"}},
			{"limited broadcast", 4, "255.255.255.255", []string{"-b", "-I", ifname}},
			{"all hosts", 4, "224.0.0.1", []string{"-I", ifname}},
			{"all nodes", 6, "ff02::1%" + ifname, nil},
		} {
			for _, size := range []int{56, 3000} {
				t.Run(fmt.Sprintf("%s/size=%d", tt.name, size), func(t *testing.T) {
					var want []netip.Addr // who asks from a link-local address gets answers from such
					for i := range l.hosts[1:] {
						for _, a := range l.addrs(t, 1+i) {
							if a.Is4() == (tt.fam == 4) && a.IsLinkLocalUnicast() == (tt.fam == 6) {
								want = append(want, a)
							}
						}
					}
					before := l.hosts[0].counters()
					// It would leave with the first answer to its last request.
					p := l.hosts[0].start(t, slices.Concat([]string{"ping", "-n", "-i", "0.05", "-s", strconv.Itoa(size)}, tt.options, []string{tt.to})...)
					for _, a := range want {
						p.says(t, fmt.Sprintf("bytes from %s%s:", a, pick(tt.fam, "", "%"+ifname)))
					}
					checkGrowth(t, before, l.hosts[0].counters, atLeast("exteth.tx_group", 1))
				})
			}
		}
	})
}

func TestRootTraceroute(t *testing.T) {
	longtest.Skip(t)
	need(t, "ping", "traceroute")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		eachFamily(t, func(t *testing.T, fam family) {
			a, b := l.hosts[0], l.hosts[1]
			a.ping(t, fam.of(b).String(), 1, 56) // resolves the neighbour
			for _, method := range []string{"default", "icmp", "tcp"} {
				t.Run(method, func(t *testing.T) {
					out := a.run(t, "traceroute", fam.flag(), "-n", "-q", "1", "-w", "5", "-M", method, fam.of(b).String())
					checkHops(t, out, fam.of(b))
				})
			}
		})
	})
}

// checkHops fails the test unless the output of traceroute -n -q 1 has exactly
// these hops.
func checkHops(t *testing.T, out string, want ...netip.Addr) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 1+len(want) {
		t.Fatalf("%d hops, want %d\n%s", len(lines)-1, len(want), out)
	}
	for i, hop := range want {
		if f := strings.Fields(lines[1+i]); len(f) < 2 || f[1] != hop.String() {
			t.Errorf("hop %d is not %v\n%s", 1+i, hop, out)
		}
	}
}

package e2e

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"exnet/internal/longtest"
	"exnet/node"
	"exnet/node/hostnet"
)

// addrs returns the addresses of the exn0 of the i-th host.
func (l *lab) addrs(t *testing.T, i int) []netip.Addr {
	t.Helper()
	var addrs []netip.Addr
	l.hosts[i].configure(t, func(c *hostnet.Conn) error {
		prefixes, err := c.Addrs(l.Nodes[i].Device.Index())
		for _, p := range prefixes {
			addrs = append(addrs, p.Addr())
		}
		return err
	})
	return addrs
}

// link is what "ip -json -s addr show" says about an interface.
type link struct {
	Name       string   `json:"ifname"`
	Flags      []string `json:"flags"`
	MTU        int      `json:"mtu"`
	TxQueueLen int      `json:"txqlen"`
	AddrInfo   []struct {
		Local string `json:"local"`
		Len   int    `json:"prefixlen"`
		Scope string `json:"scope"`
	} `json:"addr_info"`
	Stats struct {
		Rx, Tx struct{ Bytes, Packets, Errors, Dropped uint64 }
	} `json:"stats64"`
}

// link asks the ip command about exn0.
func (h *host) link(t *testing.T) link {
	t.Helper()
	out := h.run(t, "ip", "-json", "-s", "addr", "show", "dev", ifname)
	var links []link
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	return links[0]
}

// The kernel's tools see a normal interface (thesis, listing 5.1).
func TestRootLink(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "ping")
	eachPath(t, node.ClusterConfig{}, func(t *testing.T, l *lab) {
		a, b := l.hosts[0], l.hosts[1]
		before := a.link(t)
		if before.Name != ifname || before.MTU != 65535 || before.TxQueueLen != 1000 ||
			!slices.Contains(before.Flags, "UP") || !slices.Contains(before.Flags, "LOWER_UP") {
			t.Errorf("got %+v", before)
		}
		var got []string
		for _, i := range before.AddrInfo {
			got = append(got, netip.PrefixFrom(netip.MustParseAddr(i.Local), i.Len).String()+" "+i.Scope)
		}
		slices.Sort(got)
		want := []string{"10.2.0.1/24 global", "fd00:10:2::1/64 global", "fe80::2c87:4ff:fe07:1/64 link"}
		if !slices.Equal(got, want) {
			t.Errorf("addresses %q, want %q", got, want)
		}

		const n, size = 10, 1000
		eachFamily(t, func(t *testing.T, fam family) {
			before := a.link(t).Stats
			a.ping(t, fam.of(b).String(), n, size)
			after := a.link(t).Stats
			for _, d := range []struct {
				name                 string
				packets, bytes, lost uint64
			}{
				{"received", after.Rx.Packets - before.Rx.Packets, after.Rx.Bytes - before.Rx.Bytes, after.Rx.Errors + after.Rx.Dropped},
				{"sent", after.Tx.Packets - before.Tx.Packets, after.Tx.Bytes - before.Tx.Bytes, after.Tx.Errors + after.Tx.Dropped},
			} {
				if d.packets < n || d.bytes < n*size || d.lost != 0 {
					t.Errorf("%s %d packets of %d bytes with %d lost, want at least %d of %d and none lost",
						d.name, d.packets, d.bytes, d.lost, n, n*size)
				}
			}
		})
	})
}

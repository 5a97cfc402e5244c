package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/arp"
	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/node"
)

// newEthernet brings up nodes whose exn0 is an Ethernet device.
func newEthernet(t *testing.T, nodes int) *lab {
	l := newLab(t, node.ClusterConfig{Nodes: nodes, Node: node.Config{TAP: true, MTU: 1500}})
	// What another machine's kernel says about itself can meet a node that is not up yet.
	l.excuse("etherhost.tx_drop_busy", "exn.tx_stalled", "exn.tx_stalls", "exn.tx_stops")
	return l
}

// mac is the MAC address of the host's exn0.
func (h *host) mac() string { return arp.MAC(h.lab.Nodes[h.i].Interface.MAC()).String() }

// ips runs ip commands, one a line.
func (h *host) ips(t *testing.T, commands string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		if args := strings.Fields(line); len(args) > 0 {
			h.run(t, append([]string{"ip"}, args...)...)
		}
	}
}

// behind waits until a node knows behind which other one a MAC address is.
func (h *host) behind(t *testing.T, mac string, want *host) {
	t.Helper()
	eventually(t, func() error {
		for s := range h.lab.Nodes[h.i].Interface.Stations() {
			if s.MAC.String() == mac {
				if id := h.lab.Nodes[want.i].Interface.NodeID(); s.Node != id {
					return fmt.Errorf("%s is behind node %d, want %d", mac, s.Node, id)
				}
				return nil
			}
		}
		return fmt.Errorf("%s is not known", mac)
	})
}

// The kernel's tools see an Ethernet device.
func TestRootEthernetDevice(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "ping", "arping", "tcpdump")
	l := newEthernet(t, 2)
	a, b := l.hosts[0], l.hosts[1]
	flags := a.link(t).Flags
	for _, f := range []string{"BROADCAST", "MULTICAST", "UP"} {
		if !slices.Contains(flags, f) {
			t.Errorf("flags %q, without %s", flags, f)
		}
	}
	if out := a.run(t, "ip", "link", "show", ifname); a.mac() != "2e:87:04:07:00:01" || !strings.Contains(out, "link/ether "+a.mac()) {
		t.Errorf("MAC address %s, want 2e:87:04:07:00:01:\n%s", a.mac(), out)
	}
	dump := b.start(t, "tcpdump", "-e", "-i", ifname, "-n", "-l", "--immediate-mode", "-c", "2", "arp")
	dump.says(t, "listening on")
	out := a.run(t, "arping", "-c", "1", "-w", "60", "-i", ifname, "10.2.0.2")
	if !strings.Contains(out, b.mac()) {
		t.Errorf("arping: %s", out)
	}
	if out := dump.wait(t); !strings.Contains(out, a.mac()+" > ff:ff:ff:ff:ff:ff") || !strings.Contains(out, b.mac()+" > "+a.mac()) {
		t.Errorf("tcpdump -e: %s", out)
	}
	eachFamily(t, func(t *testing.T, fam family) {
		a.ping(t, fam.of(b).String(), 3, 20000)
		if out := a.run(t, "ip", fam.flag(), "neigh", "show", fam.of(b).String()); !strings.Contains(out, b.mac()) {
			t.Errorf("neighbours: %s", out)
		}
	})
}

// A macvlan and what is behind a bridge have MAC addresses of their own, which are learned.
func TestRootEthernetBridge(t *testing.T) {
	need(t, "ip", "ping", "iperf3")
	l := newEthernet(t, 3)
	a, b, c := l.hosts[0], l.hosts[1], l.hosts[2]
	const macvlan, machine = "52:54:00:00:00:01", "52:54:00:00:00:02"
	b.ips(t, `link add macv0 link exn0 address `+macvlan+` type macvlan mode bridge
		addr add 10.2.0.20/24 dev macv0
		link set macv0 up`)
	a.ping(t, "10.2.0.20", 3, 1400)
	a.behind(t, macvlan, b)

	guest := netnstest.New(t)
	out, err := runIn(t, guest, nil, "ip", "link", "add", "eth0", "address", machine, "type", "veth", "peer", "name", "tap0")
	if err != nil {
		t.Fatal(err, out)
	}
	if out, err = runIn(t, guest, nil, "ip", "link", "set", "tap0", "netns", c.ns.Path()); err != nil {
		t.Fatal(err, out)
	}
	// As docs/ethernet.md says.
	c.ips(t, `link add br0 address `+c.mac()+` type bridge
		link set exn0 master br0
		link set tap0 master br0
		link set tap0 up
		link set br0 up
		addr flush dev exn0
		addr add 10.2.0.3/24 dev br0`)
	for _, args := range []string{"link set lo up", "link set eth0 up", "addr add 10.2.0.30/24 dev eth0", "addr add fd00:10:2::30/64 dev eth0 nodad"} {
		if out, err := runIn(t, guest, nil, append([]string{"ip"}, strings.Fields(args)...)...); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	for _, to := range []string{"10.2.0.30", "fd00:10:2::30", "10.2.0.3"} {
		a.ping(t, to, 3, 1400)
	}
	a.behind(t, machine, c)
	// It stays where frames of it come from, and goes where others do.
	server := startIn(t, guest, nil, "iperf3", "-s", "-1", "--forceflush", "-p", "5300")
	server.says(t, "listening")
	a.run(t, "iperf3", "-c", "10.2.0.30", "-p", "5300", "-n", "4M")
	server.wait(t)
	b.run(t, "ip", "link", "set", "macv0", "down")
	b.ips(t, `link set macv0 address `+machine+`
		link set macv0 up`)
	b.run(t, "ping", "-c", "1", "-w", "60", "-I", "macv0", "10.2.0.1")
	a.behind(t, machine, b)
}

// A host without an address gets one over exn0 (thesis 5.4.6).
func TestRootEthernetDHCP(t *testing.T) {
	longtest.Skip(t)
	need(t, "ip", "ping", "dnsmasq", "dhclient")
	l := newEthernet(t, 2)
	a, b := l.hosts[0], l.hosts[1]
	dir := t.TempDir()
	server := a.start(t, "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface="+ifname, "--bind-interfaces",
		"--dhcp-range=10.2.0.100,10.2.0.100,255.255.255.0", "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--user=root", "--pid-file="+filepath.Join(dir, "pid"))
	server.says(t, "DHCP, IP range")
	script := filepath.Join(dir, "script")
	// Debian's own would write to /etc/resolv.conf.
	if err := os.WriteFile(script, []byte("#!/bin/sh\nif [ \"$new_ip_address\" ]; then ip addr add $new_ip_address/24 dev $interface; fi\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.ips(t, "addr flush dev exn0 scope global")
	client := b.start(t, "dhclient", "-1", "-d", "-v", "-cf", "/dev/null", "-lf", filepath.Join(dir, "client"), "-pf", filepath.Join(dir, "client.pid"), "-sf", script, ifname)
	client.says(t, "bound to 10.2.0.100")
	b.ping(t, "10.2.0.1", 3, 1400)
	if addrs := l.addrs(t, 1); !slices.Contains(addrs, netip.MustParseAddr("10.2.0.100")) {
		t.Errorf("addresses %v, want 10.2.0.100", addrs)
	}
	client.stop()
	server.stop()
}

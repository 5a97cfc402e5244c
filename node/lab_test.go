package node

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
	"exnet/node/tun"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// startCluster starts a Cluster that is closed when the test ends, or skips the
// test and says why.
func startCluster(t *testing.T, cfg ClusterConfig) *Cluster {
	t.Helper()
	require(t)
	netnstest.CheckFDs(t)
	c, err := StartCluster(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func require(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	if err := tun.Supported(); err != nil {
		t.Skip(err)
	}
}

// eachPath runs a test with the fast path and without.
func eachPath(t *testing.T, f func(t *testing.T, noFastPath bool)) {
	for _, no := range []bool{false, true} {
		t.Run(fmt.Sprintf("no-fast-path=%v", no), func(t *testing.T) { f(t, no) })
	}
}

// pingID tells the pings of a run apart.
var pingID atomic.Uint32

// ping sends an echo request of size bytes of payload from a namespace and waits
// for the reply.
func ping(ns *netns.NS, to netip.Addr, size int, wait time.Duration) error {
	network, proto, typ := "ip4:icmp", 1, icmp.Type(ipv4.ICMPTypeEcho)
	reply := icmp.Type(ipv4.ICMPTypeEchoReply)
	if to.Is6() {
		network, proto, typ, reply = "ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn *icmp.PacketConn
	if err := ns.Do(func() (err error) {
		conn, err = icmp.ListenPacket(network, "")
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	id := int(pingID.Add(1) & 0xffff)
	msg, err := (&icmp.Message{Type: typ, Body: &icmp.Echo{ID: id, Data: data}}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(msg, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	conn.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 1<<16)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("no reply from %v: %w", to, err)
		}
		m, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id {
			if !bytes.Equal(e.Data, data) {
				return fmt.Errorf("the reply of %v has other data", to)
			}
			return nil
		}
	}
}

// reaches fails the test unless to answers a ping, sooner or later.
func reaches(t *testing.T, ns *netns.NS, to netip.Addr, size int) {
	t.Helper()
	var err error
	for range 20 {
		if err = ping(ns, to, size, 500*time.Millisecond); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error(err)
}

// addrs returns the IPv4 and IPv6 address of the i-th node.
func addrs(i int) []netip.Addr { return []netip.Addr{Addr4(i).Addr(), Addr6(i).Addr()} }

// conn opens the network configuration of a namespace.
func conn(t *testing.T, ns *netns.NS) *hostnet.Conn {
	t.Helper()
	c, err := hostnet.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

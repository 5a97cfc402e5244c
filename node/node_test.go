package node

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/wire"
	"exnet/fabric/nic"
	"exnet/internal/netns/netnstest"
	"exnet/ipstack"
	"exnet/mtu"
	"exnet/node/hostnet"
	"exnet/node/tun"

	"github.com/vishvananda/netlink"
)

// Every node reaches every other one, over IPv4 and IPv6.
func TestRootPing(t *testing.T) {
	for _, nodes := range []int{2, 5} {
		t.Run(fmt.Sprintf("nodes=%d", nodes), func(t *testing.T) {
			eachPath(t, func(t *testing.T, no bool) {
				c := startCluster(t, ClusterConfig{Nodes: nodes, Node: Config{NoFastPath: no}})
				for i := range nodes {
					for j := range nodes {
						if i == j {
							continue
						}
						for _, to := range addrs(j) {
							for _, size := range []int{56, 3000} {
								if err := ping(c.Namespace(i), to, size, 30*time.Second); err != nil {
									t.Errorf("node %d: %v", 1+i, err)
								}
							}
						}
					}
				}
				s := c.Nodes[0].Interface.Stats()
				if s.Port.TxEager == 0 || s.Port.TxRendezvous == 0 || s.Port.TxGroup == 0 {
					t.Errorf("%d frames eagerly, %d by rendezvous, %d to the group: all are wanted",
						s.Port.TxEager, s.Port.TxRendezvous, s.Port.TxGroup)
				}
				if fast := c.Nodes[0].Stack.Stats()[ipstack.FastTx] > 0; fast == no {
					t.Errorf("the fast path was taken: %v", fast)
				}
			})
		})
	}
}

// The stack follows the addresses that the kernel's interface gets and loses.
func TestRootAddresses(t *testing.T) {
	eachPath(t, func(t *testing.T, no bool) {
		c := startCluster(t, ClusterConfig{Nodes: 3, Node: Config{NoFastPath: no}})
		index := c.Nodes[1].Device.Index()
		b := conn(t, c.Namespace(1))
		for _, p := range []string{"10.2.0.99/24", "fd00:10:2::99/64"} {
			prefix := netip.MustParsePrefix(p)
			if err := ping(c.Namespace(0), prefix.Addr(), 56, 50*time.Millisecond); err == nil {
				t.Errorf("%v answers before it is there", prefix)
			}
			if err := b.Configure(index, hostnet.LinkConfig{Addrs: []netip.Prefix{prefix}}); err != nil {
				t.Fatal(err)
			}
			reaches(t, c.Namespace(0), prefix.Addr(), 56)
			if err := c.Namespace(1).Do(func() error {
				h, err := netlink.NewHandle()
				if err != nil {
					return err
				}
				defer h.Close()
				addr, err := netlink.ParseAddr(p)
				if err != nil {
					return err
				}
				return h.AddrDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, addr)
			}); err != nil {
				t.Fatal(err)
			}
			// Node 3 has never heard of it, so it would have to resolve it.
			time.Sleep(20 * time.Millisecond)
			if err := ping(c.Namespace(2), prefix.Addr(), 56, 50*time.Millisecond); err == nil {
				t.Errorf("%v answers after it was removed", prefix)
			}
		}
	})
}

// A route by way of another node's address leads there.
func TestRootGateway(t *testing.T) {
	eachPath(t, func(t *testing.T, no bool) {
		c := startCluster(t, ClusterConfig{Nodes: 2, Node: Config{NoFastPath: no}})
		b := conn(t, c.Namespace(1))
		lo, err := b.Link("lo")
		if err != nil {
			t.Fatal(err)
		}
		far := []netip.Prefix{netip.MustParsePrefix("10.77.0.1/32"), netip.MustParsePrefix("fd77::1/128")}
		if err := b.Configure(lo.Index, hostnet.LinkConfig{Addrs: far}); err != nil {
			t.Fatal(err)
		}
		for i, gw := range addrs(1) {
			dst := netip.PrefixFrom(far[i].Addr(), []int{24, 64}[i]).Masked()
			if err := c.Namespace(0).Do(func() error {
				h, err := netlink.NewHandle()
				if err != nil {
					return err
				}
				defer h.Close()
				return h.RouteAdd(&netlink.Route{
					LinkIndex: c.Nodes[0].Device.Index(),
					Dst:       &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())},
					Gw:        gw.AsSlice(),
				})
			}); err != nil {
				t.Fatal(err)
			}
			reaches(t, c.Namespace(0), far[i].Addr(), 1000)
		}
	})
}

// TCP carries its bytes at every MTU, in large segments where the kernel makes
// them.
func TestRootMTU(t *testing.T) {
	for _, m := range []mtu.Network{mtu.MinIPv6, 1500, 9000, mtu.Default} {
		t.Run(fmt.Sprintf("mtu=%d", m), func(t *testing.T) {
			eachPath(t, func(t *testing.T, no bool) {
				c := startCluster(t, ClusterConfig{Node: Config{MTU: m, NoFastPath: no}})
				l, err := conn(t, c.Namespace(0)).LinkByIndex(c.Nodes[0].Device.Index())
				if err != nil || l.MTU != int(m) || !l.Up {
					t.Errorf("the kernel's interface: %+v, %v", l, err)
				}
				for _, to := range addrs(1) {
					reaches(t, c.Namespace(0), to, int(m)-48)
					reaches(t, c.Namespace(0), to, min(int(m)+100, 60000)) // in fragments
					transfer(t, c, to, 2<<20)
				}
				s := c.Nodes[0].Interface.Stats()
				// Not TxStalled: a busy machine may leave a node without a CPU for the stall time.
				if n := s.TxTooLong + s.TxUnknownMAC + s.Port.TxBadSize; n != 0 {
					t.Errorf("%d frames were dropped: %+v %+v", n, s.Counters, s.Port)
				}
			})
		})
	}
}

// transfer sends size random bytes over TCP from the first node to an address of
// the second, and back.
func transfer(t *testing.T, c *Cluster, to netip.Addr, size int) {
	t.Helper()
	var ln net.Listener
	if err := c.Namespace(1).Do(func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		peer, err := ln.Accept()
		if err != nil {
			return
		}
		defer peer.Close()
		data, err := io.ReadAll(struct{ io.Reader }{peer})
		if err != nil {
			t.Errorf("receiving: %v", err)
		}
		if _, err := peer.Write(data); err != nil {
			t.Errorf("sending back: %v", err)
		}
	})
	var conn net.Conn
	if err := c.Namespace(0).Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", ln.Addr().String(), 30*time.Second)
		return err
	}); err != nil {
		t.Error(err)
		ln.Close()
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	if _, err := conn.Write(data); err != nil {
		t.Errorf("sending: %v", err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Error(err)
	}
	back, err := io.ReadAll(struct{ io.Reader }{conn})
	if err != nil || !bytes.Equal(back, data) {
		t.Errorf("%d bytes came back with SHA-256 %x, want %d with %x: %v",
			len(back), sha256.Sum256(back), len(data), sha256.Sum256(data), err)
	}
}

// A Cluster leaves nothing, whenever it is closed, and twice does no harm.
func TestRootClose(t *testing.T) {
	require(t)
	netnstest.CheckFDs(t)
	for _, traffic := range []bool{false, true} {
		c, err := StartCluster(ClusterConfig{Nodes: 3})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		if traffic {
			var conn net.PacketConn
			if err := c.Namespace(0).Do(func() (err error) {
				conn, err = net.ListenPacket("udp", ":0")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for j := range 2 {
				to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(Addr4(1+j).Addr(), 9))
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							conn.WriteTo(make([]byte, 1000), to) // refused, later unreachable
						}
					}
				})
			}
			defer conn.Close()
			time.Sleep(20 * time.Millisecond)
		}
		done := make(chan error)
		go func() { done <- c.Wait() }()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Wait: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		close(stop)
		wg.Wait()
	}
}

// A device that is removed ends the data path, with an error that says so.
func TestRootDeviceRemoved(t *testing.T) {
	require(t)
	netnstest.CheckFDs(t)
	c, err := StartCluster(ClusterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Namespace(1).Do(func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer h.Close()
		return h.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: c.Nodes[1].Device.Index()}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); !errors.Is(err, tun.ErrGone) {
		t.Errorf("Wait: %v, want ErrGone", err)
	}
	if err := c.Close(); !errors.Is(err, tun.ErrGone) {
		t.Errorf("Close: %v, want ErrGone", err)
	}
}

func TestClusterConfig(t *testing.T) {
	for _, n := range []int{-1, 255} {
		if _, err := StartCluster(ClusterConfig{Nodes: n}); err == nil {
			t.Errorf("%d nodes are taken", n)
		}
	}
	if _, err := StartCluster(ClusterConfig{Nodes: MaxFaultyNodes + 1, Faults: new(wire.Faults)}); err == nil {
		t.Error("too many nodes with faults are taken")
	}
	if _, err := StartCluster(ClusterConfig{Faults: &wire.Faults{Drop: 2}}); !errors.Is(err, wire.ErrFaults) {
		t.Errorf("wrong faults: %v", err)
	}
	if a, b := Addr4(0), Addr4(253); a.String() != "10.2.0.1/24" || b.String() != "10.2.0.254/24" {
		t.Errorf("IPv4 addresses %v to %v", a, b)
	}
	if a, b := Addr6(0), Addr6(253); a.String() != "fd00:10:2::1/64" || b.String() != "fd00:10:2::fe/64" {
		t.Errorf("IPv6 addresses %v to %v", a, b)
	}
}

// What cannot work is refused with nothing left behind: no descriptor, no
// interface, and no VPID taken.
func TestRootRefused(t *testing.T) {
	require(t)
	netnstest.CheckFDs(t)
	ns := netnstest.New(t)
	card, err := nic.New(nic.Config{Node: fabric.NodeID(1)})
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	if err := mem.NewFabric().Attach(card); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"MTU", Config{MTU: 100}},
		{"threshold", Config{EagerThreshold: 1}},
		{"interface name", Config{Name: "a/b"}},
		{"loopback's name", Config{Name: "lo"}},
		{"address without a network", Config{Addrs: []netip.Prefix{{}}}},
		{"congestion control", Config{CongestionControl: "nosuch", Addrs: []netip.Prefix{Addr4(0)}}},
	} {
		tt.cfg.NS, tt.cfg.NIC = ns, card
		if n, err := New(tt.cfg); err == nil {
			t.Errorf("%s: %v is taken", tt.name, n)
		}
	}
	// The same NIC and namespace serve a good one.
	n, err := New(Config{NS: ns, NIC: card, Addrs: []netip.Prefix{Addr4(0)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := n.String(); got != "node 1 (exn0)" {
		t.Errorf("String() = %q", got)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/sys/class/net/exn0"); err == nil {
		t.Error("exn0 is in the host's namespace")
	}
}

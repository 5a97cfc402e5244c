package pressure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sync/errgroup"

	"exnet/internal/longtest"
)

// pinger sends echo requests from a node.
type pinger struct{ conn *icmp.PacketConn }

func (n *node) pinger() (p *pinger, err error) {
	p = new(pinger)
	err = n.ns.Do(func() (err error) {
		p.conn, err = icmp.ListenPacket("ip4:icmp", n.addr)
		return err
	})
	return p, err
}

// ping sends a request, again every second until the time is over, and returns how long
// the answer took since the first. A lost one is no fault: this is IP.
func (p *pinger) ping(to string, id, seq int, timeout time.Duration) (time.Duration, error) {
	msg := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: seq, Data: make([]byte, 56)}}
	b, err := msg.Marshal(nil)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	buf := make([]byte, 1500)
	for time.Since(start) < timeout {
		if _, err := p.conn.WriteTo(b, &net.IPAddr{IP: net.ParseIP(to)}); err != nil {
			return 0, err
		}
		if err := p.conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return 0, err
		}
		for {
			n, from, err := p.conn.ReadFrom(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return 0, err
			}
			m, err := icmp.ParseMessage(1, buf[:n])
			if err != nil || m.Type != ipv4.ICMPTypeEchoReply || from.String() != to {
				continue
			}
			if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && e.Seq == seq {
				return time.Since(start), nil
			}
		}
	}
	return 0, fmt.Errorf("%s does not answer in %v", to, timeout)
}

// Many nodes on one host: each reaches each, a group reaches all, and when they go
// nothing is left.
func TestRootManyNodes(t *testing.T) {
	longtest.Skip(t)
	nodes := size(8, 64)
	start := time.Now()
	l := newLab(t, nodes)
	up := time.Since(start)
	memory, fds := 0, 0
	for _, n := range l.nodes {
		u := n.usage(t)
		memory += u.pss
		fds += u.fds
	}
	t.Logf("%d nodes are linked to each other after %v; %.1f MiB and %d descriptors each", nodes, up.Round(time.Millisecond),
		float64(memory)/1024/float64(nodes), fds/nodes)

	start = time.Now()
	var slowest time.Duration
	for i, from := range l.nodes {
		p, err := from.pinger()
		if err != nil {
			t.Fatal(err)
		}
		for j, to := range l.nodes {
			if i == j {
				continue
			}
			took, err := p.ping(to.addr, i, j, hangTime)
			if err != nil {
				t.Error(err)
			}
			slowest = max(slowest, took)
		}
		p.conn.Close()
	}
	t.Logf("%d pings from each to each in %v, the slowest in %v", nodes*(nodes-1), time.Since(start).Round(time.Millisecond), slowest)

	group := netip.MustParseAddrPort("239.1.2.3:7000")
	start = time.Now()
	l.multicast(t, group)
	t.Logf("a group of %d heard from its first in %v", nodes-1, time.Since(start).Round(time.Millisecond))

	start = time.Now()
	for _, n := range l.nodes {
		if err := n.Cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
	}
	for _, n := range l.nodes {
		select {
		case <-n.Done:
		case <-time.After(hangTime):
			t.Fatalf("%s does not end\n%s", n.Name, n.text())
		}
		if n.Err != nil {
			t.Errorf("%s: %v\n%s", n.Name, n.Err, n.text())
		}
		if err := n.ns.Do(func() error { return noInterface("exn0") }); err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
		if warn := strings.Count(n.text(), "level=WARN"); warn > nodes {
			t.Errorf("%s has logged %d warnings:\n%s", n.Name, warn, n.text())
		}
	}
	t.Logf("all gone in %v", time.Since(start).Round(time.Millisecond))
}

func noInterface(name string) error {
	if _, err := net.InterfaceByName(name); err == nil {
		return errors.New(name + " is still there")
	}
	return nil
}

// multicast has all nodes but the first join a group, and waits until each has heard of
// the first.
func (l *lab) multicast(t *testing.T, group netip.AddrPort) {
	t.Helper()
	var members []*net.UDPConn
	for _, n := range l.nodes[1:] {
		if err := n.ns.Do(func() error {
			ifi, err := net.InterfaceByName("exn0")
			if err != nil {
				return err
			}
			c, err := net.ListenMulticastUDP("udp4", ifi, net.UDPAddrFromAddrPort(group))
			if err == nil {
				members = append(members, c)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	var sender *net.UDPConn
	if err := l.nodes[0].ns.Do(func() (err error) {
		local := &net.UDPAddr{IP: net.ParseIP(l.nodes[0].addr)}
		sender, err = net.DialUDP("udp4", local, net.UDPAddrFromAddrPort(group))
		if err != nil {
			return err
		}
		ifi, err := net.InterfaceByName("exn0")
		if err != nil {
			return err
		}
		return ipv4.NewPacketConn(sender).SetMulticastInterface(ifi)
	}); err != nil {
		t.Fatal(err)
	}
	var heard errgroup.Group
	for i, c := range members {
		heard.Go(func() error {
			buf := make([]byte, 100)
			if err := c.SetReadDeadline(time.Now().Add(hangTime)); err != nil {
				return err
			}
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) != "hello" {
				return fmt.Errorf("member %d: %q, %w", i+2, buf[:n], err)
			}
			return nil
		})
	}
	// Joining takes its time: it is sent until all have heard it.
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			_, _ = sender.Write([]byte("hello"))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	if err := heard.Wait(); err != nil {
		t.Error(err)
	}
	close(stop)
	sending.Wait()
	for _, c := range append(members, sender) {
		c.Close()
	}
}

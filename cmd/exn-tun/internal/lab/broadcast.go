package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"exnet/internal/ctxend"
	"exnet/node"
	"exnet/node/hostnet"
)

const (
	// broadcastPort is free in a namespace that was just made.
	broadcastPort = 4242
	// broadcastLen is above the default eager threshold. Frames to a group go as VELO messages
	// nevertheless.
	broadcastLen = 1000
)

// broadcastTimeout returns how long all n*(n-1) datagrams may take to arrive.
func broadcastTimeout(n int) time.Duration {
	return 10*time.Second + time.Duration(n)*20*time.Millisecond
}

// AllNodes is the IPv6 multicast group of all hosts on a link (RFC 4291,
// section 2.7.1), which replaces broadcast.
var AllNodes = netip.MustParseAddr("ff02::1")

// Broadcast sends a datagram from each of the nodes to all, and waits until it
// has arrived at every other one.
func Broadcast(ctx context.Context, l *Lab, f Family) error {
	conns := make([]net.PacketConn, len(l.Cluster.Nodes))
	ctx, cancel := context.WithTimeout(ctx, broadcastTimeout(len(conns)))
	defer cancel()
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	for i := range conns {
		if err := l.Cluster.Namespace(i).Do(func() (err error) {
			conns[i], err = net.ListenPacket(fmt.Sprintf("udp%d", int(f)), ":"+strconv.Itoa(broadcastPort))
			return err
		}); err != nil {
			return err
		}
		deadline, _ := ctx.Deadline()
		if err := conns[i].SetDeadline(deadline); err != nil {
			return err
		}
	}
	defer ctxend.Do(ctx, func() {
		for _, c := range conns {
			c.Close()
		}
	})()

	var group errgroup.Group
	for i, c := range conns {
		group.Go(func() error { return receiveAll(c, i, len(conns)) })
	}
	for i, c := range conns {
		to, err := broadcastAddr(l, i, f)
		if err == nil {
			_, err = c.WriteTo(numberedDatagram(i), net.UDPAddrFromAddrPort(to))
		}
		if err != nil {
			cancel()
			return errors.Join(fmt.Errorf("node %d cannot send: %w", 1+i, err), group.Wait())
		}
	}
	return group.Wait()
}

// broadcastAddr returns the address to which the i-th node sends a datagram for all.
func broadcastAddr(l *Lab, i int, f Family) (netip.AddrPort, error) {
	if f == V4 {
		return netip.AddrPortFrom(BroadcastAddr(), broadcastPort), nil
	}
	conn, err := hostnet.Open(l.Cluster.Namespace(i))
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	link, err := conn.Link(l.Cluster.Nodes[i].Device.Name())
	// The zone is a number, because package net caches names of interfaces for the whole
	// process.
	return netip.AddrPortFrom(AllNodes.WithZone(strconv.Itoa(link.Index)), broadcastPort), err
}

// BroadcastAddr returns the last address of the nodes' IPv4 network.
func BroadcastAddr() netip.Addr {
	network := node.Addr4(0)
	a := network.Addr().As4()
	for bit := network.Bits(); bit < 32; bit++ {
		a[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(a)
}

// numberedDatagram returns what the i-th node sends: its number, over and over.
func numberedDatagram(i int) []byte {
	b := make([]byte, broadcastLen)
	for j := range b {
		b[j] = byte(i)
	}
	return b
}

// receiveAll waits until the i-th of n nodes has the datagrams of all others.
func receiveAll(c net.PacketConn, i, n int) error {
	got := make([]bool, n)
	got[i] = true
	buf := make([]byte, 2*broadcastLen)
	for slices.Contains(got, false) {
		k, _, err := c.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("node %d did not get the datagram of node %d: %w", 1+i, 1+slices.Index(got, false), err)
		}
		from := int(buf[0])
		if from >= n || string(buf[:k]) != string(numberedDatagram(from)) {
			return fmt.Errorf("node %d got a damaged datagram", 1+i)
		}
		got[from] = true
	}
	return nil
}

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"exnet/internal/ctxend"
	"exnet/internal/netns"
)

// echoProto holds what differs between ICMP and ICMPv6.
type echoProto struct {
	network        string
	number         int // protocol number
	request, reply icmp.Type
}

func echoProtoOf(to netip.Addr) echoProto {
	if to.Is4() {
		return echoProto{"ip4:icmp", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	}
	return echoProto{"ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
}

// echoDataLen is the length of the data of a request, as in the program ping.
const echoDataLen = 56

// echoPing replaces ping on systems without it. It sends s.Count requests to to, each after the
// previous one was answered and s.Interval has passed.
func echoPing(ctx context.Context, ns *netns.NS, to netip.Addr, s PingSpec) ([]time.Duration, error) {
	p := echoProtoOf(to)
	var conn net.PacketConn
	if err := ns.Do(func() (err error) {
		conn, err = net.ListenPacket(p.network, "")
		return err
	}); err != nil {
		return nil, fmt.Errorf("echo: %w", err)
	}
	defer conn.Close()
	defer ctxend.Do(ctx, func() { conn.Close() })()

	e := echo{p, conn, &net.IPAddr{IP: to.AsSlice()}, int(rand.Uint32N(1 << 16))}
	deadline := time.Now().Add(s.timeout())
	var trips []time.Duration
	for seq := 1; seq <= s.Count; seq++ {
		trip, err := e.pingOnce(seq, deadline)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("echo: %w", err)
		}
		trips = append(trips, trip)
		select {
		case <-time.After(s.Interval - trip):
		case <-ctx.Done():
		}
	}
	return trips, nil
}

// echo sends requests to one address.
type echo struct {
	echoProto
	conn net.PacketConn
	to   net.Addr
	id   int
}

// pingOnce sends a request and waits for its answer.
func (e echo) pingOnce(seq int, deadline time.Time) (time.Duration, error) {
	data := make([]byte, echoDataLen)
	binary.BigEndian.PutUint64(data, rand.Uint64())
	// The kernel computes the checksum of ICMPv6 itself.
	request, err := (&icmp.Message{Type: e.request, Body: &icmp.Echo{ID: e.id, Seq: seq, Data: data}}).Marshal(nil)
	if err != nil {
		return 0, err
	}
	if err := e.conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	sent := time.Now()
	if _, err := e.conn.WriteTo(request, e.to); err != nil {
		return 0, err
	}
	buf := make([]byte, 2*echoDataLen)
	for {
		n, from, err := e.conn.ReadFrom(buf)
		trip := time.Since(sent)
		if err != nil {
			return 0, err
		}
		m, err := icmp.ParseMessage(e.number, buf[:n])
		if err != nil || m.Type != e.reply || from.String() != e.to.String() {
			continue // a raw socket gets all ICMP of the host
		}
		if body, ok := m.Body.(*icmp.Echo); ok && body.ID == e.id && body.Seq == seq && string(body.Data) == string(data) {
			return trip, nil
		}
	}
}

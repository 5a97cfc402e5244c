package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

// answerTime is when a datagram counts as lost.
const answerTime = 5 * time.Second

// udp has a peer return datagrams, one at a time.
func (c *client) udp(peer int, rnd *rand.Rand) {
	r := record{Kind: "udp", Phase: phaseDatagram, Client: c.job.Node, Server: peer, Program: roleServer, Start: time.Now()}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(peer, rnd.IntN(4) == 0), portUDP)))
	if err != nil { // no route
		c.fail(r, err, 0)
		return
	}
	defer conn.Close()
	buf := make([]byte, 1<<16)
	for range 1 + rnd.IntN(20) {
		if c.gate.closing() {
			break
		}
		r.Start = time.Now()
		number := rnd.Uint64()
		b := datagram(c.job.Node, number, int(logSize(rnd, 60_000)))
		var t tally
		err := func() error {
			if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
				return err
			}
			if _, err := conn.Write(b); err != nil {
				return err
			}
			t.Messages = 1
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return err
				}
				node, got, err := parseDatagram(buf[:n])
				if err != nil || node != c.job.Node {
					return fmt.Errorf("%w: of node %d", errMismatch, node)
				}
				if got == number {
					t.Answers, t.Bytes = 1, uint64(n)
					return nil
				}
			}
		}()
		c.add(r.Kind, peer, t)
		if err != nil {
			c.fail(r, err, 0)
			return
		}
	}
	c.add(r.Kind, peer, tally{Conns: 1})
}

// pinger sends echo requests of ICMP.
type pinger struct {
	conn *icmp.PacketConn
	id   int

	mu     sync.Mutex
	number uint16                 // guarded by mu; of the last request
	wait   map[uint16]chan []byte // guarded by mu; those who wait for an answer, by number
}

func newPinger(node int) (*pinger, error) {
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return nil, err
	}
	_ = conn.IPv4PacketConn().SetControlMessage(ipv4.FlagDst, false)
	p := &pinger{conn: conn, id: os.Getpid() & 0xffff, wait: make(map[uint16]chan []byte)}
	go p.receive()
	return p, nil
}

func (p *pinger) receive() {
	buf := make([]byte, 1<<16)
	for {
		n, _, err := p.conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 8 || buf[0] != byte(ipv4.ICMPTypeEchoReply) || int(binary.BigEndian.Uint16(buf[4:])) != p.id {
			continue
		}
		number := binary.BigEndian.Uint16(buf[6:])
		p.mu.Lock()
		if w := p.wait[number]; w != nil {
			delete(p.wait, number)
			w <- append([]byte(nil), buf[8:n]...)
		}
		p.mu.Unlock()
	}
}

var errNoAnswer = errors.New("no answer")

// ping sends a request with data and returns that of the answer.
func (p *pinger) ping(to netip.Addr, data []byte) ([]byte, error) {
	answer := make(chan []byte, 1)
	p.mu.Lock()
	p.number++
	number := p.number
	p.wait[number] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		if p.wait[number] == answer {
			delete(p.wait, number)
		}
		p.mu.Unlock()
	}()
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: p.id, Seq: int(number), Data: data}}
	b, err := m.Marshal(nil)
	if err != nil {
		return nil, err
	}
	if _, err := p.conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return nil, err
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case got := <-answer:
		return got, nil
	case <-timer.C:
		return nil, errNoAnswer
	}
}

// pings pings a peer some times.
func (c *client) pings(peer int, rnd *rand.Rand) {
	r := record{Kind: "ping", Phase: phaseDatagram, Client: c.job.Node, Server: peer}
	for range 1 + rnd.IntN(20) {
		if c.gate.closing() {
			break
		}
		r.Start = time.Now()
		data := datagram(c.job.Node, rnd.Uint64(), int(logSize(rnd, 8000)))
		got, err := c.ping.ping(addr(peer, false), data)
		if err == nil && string(got) != string(data) {
			err = fmt.Errorf("%w: the answer to a ping of %d bytes", errMismatch, len(data))
		}
		t := tally{Messages: 1}
		if err == nil {
			t.Answers, t.Bytes = 1, uint64(len(got))
		}
		c.add(r.Kind, peer, t)
		if err != nil {
			c.fail(r, err, 0)
			return
		}
		time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
	}
	c.add(r.Kind, peer, tally{Conns: 1})
}

const (
	ifname = "exn0"
	groups = 4
)

func group(i int) *net.UDPAddr {
	return &net.UDPAddr{IP: net.IPv4(239, 77, 0, byte(1+i)), Port: portGroup}
}

// join is a member of a group for some time, and looks at what comes.
func (c *client) join(rnd *rand.Rand) {
	in, err := net.InterfaceByName(ifname)
	if err != nil {
		return // its daemon is down
	}
	conn, err := net.ListenMulticastUDP("udp4", in, group(rnd.IntN(groups)))
	if err != nil {
		return // or down just now
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(100+rnd.IntN(900)) * time.Millisecond))
	buf := make([]byte, 1<<16)
	for !c.gate.closing() {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		node, _, err := parseDatagram(buf[:n])
		if err != nil {
			r := record{Kind: "join", Phase: phaseDatagram, Client: c.job.Node, Start: time.Now()}
			c.fail(r, err, 0)
			return
		}
		c.add("join", node, tally{Answers: 1, Bytes: uint64(n)})
	}
}

// multicast sends to groups.
func (c *client) multicast(rnd *rand.Rand) {
	in, err := net.InterfaceByName(ifname)
	if err != nil {
		return
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		return
	}
	defer conn.Close()
	p := ipv4.NewPacketConn(conn)
	if errors.Join(p.SetMulticastInterface(in), p.SetMulticastLoopback(false)) != nil {
		return
	}
	for range 20 {
		b := datagram(c.job.Node, rnd.Uint64(), int(logSize(rnd, 8000)))
		if _, err := conn.WriteToUDP(b, group(rnd.IntN(groups))); err == nil {
			c.add("multicast", 0, tally{Messages: 1})
		}
		time.Sleep(time.Millisecond)
	}
}

package broker

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// rawPeer speaks to a broker as another node may.
type rawPeer struct {
	t    *testing.T
	conn *net.UnixConn
	in   *rpc.Inbound
	done chan error
}

func dialPeer(t *testing.T, s *Server) *rawPeer {
	t.Helper()
	ends := brokertest.SocketPair(t)
	p := &rawPeer{t: t, conn: ends[0], done: make(chan error, 1)}
	go func() { p.done <- s.Peer(ends[1]) }()
	t.Cleanup(func() { ends[0].Close() })
	var err error
	if p.in, err = rpc.NewInbound(ends[0], maxPeerLen, wire.MaxDescriptors); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *rawPeer) send(m peerMessage, fds ...int) {
	p.t.Helper()
	b, err := m.AppendBinary(nil)
	if err == nil {
		_, _, err = p.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// result waits for a RESULT.
func (p *rawPeer) result() peerMessage { p.t.Helper(); return p.next(peerResult) }

// next waits for a message of one of these types.
func (p *rawPeer) next(types ...peerType) peerMessage {
	p.t.Helper()
	p.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	for {
		raw, fds, err := p.in.Next()
		fds.Close()
		var m peerMessage
		if err == nil {
			err = m.UnmarshalBinary(raw)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if slices.Contains(types, m.Type) {
			return m
		}
	}
}

// TestHostilePeer breaks the rules between brokers.
func TestHostilePeer(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}})
	c := dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.1.1:0")
	c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return c.Listener(port(ln.Addr())) })
	here := netip.AddrPortFrom(addrA, port(ln.Addr()))
	node := peerMessage{Type: peerNode, Node: 2, Addrs: []netip.Addr{addrB}}
	conn := dialFrom(t, ln, addrB.String(), 0)
	good := conn.key
	hand := func(id uint32, k wire.Key) peerMessage {
		return peerMessage{Type: peerHand, ID: id, Client: k.Client, Server: k.Server}
	}
	for _, tt := range []struct {
		name string
		say  func(p *rawPeer, b bundle)
	}{
		{"nothing but the end", func(p *rawPeer, b bundle) { p.conn.Close() }},
		{"no NODE", func(p *rawPeer, b bundle) { p.send(peerMessage{Type: peerResult, ID: 1}) }},
		{"another NODE", func(p *rawPeer, b bundle) { p.send(node); p.send(peerMessage{Type: peerNode, Node: 3}) }},
		{"NODE with a descriptor", func(p *rawPeer, b bundle) { p.send(node, b.bell) }},
		{"a client's message", func(p *rawPeer, b bundle) {
			p.send(node)
			m, _ := wire.Message{Type: wire.Claim}.AppendBinary(nil)
			p.conn.Write(m)
		}},
		{"listeners elsewhere", func(p *rawPeer, b bundle) {
			p.send(node)
			p.send(peerMessage{Type: peerPort, Bound: bound{addr: addrA, port: 80}, Count: 1})
		}},
		{"more listeners than there can be", func(p *rawPeer, b bundle) {
			p.send(node)
			p.send(peerMessage{Type: peerPort, Bound: bound{addr: addrB, port: 80}, Count: 1 << 31})
		}},
		{"HAND without descriptors", func(p *rawPeer, b bundle) { p.send(node); p.send(hand(1, good)) }},
		{"HAND with three", func(p *rawPeer, b bundle) { p.send(node); p.send(hand(1, good), b.seg, b.bell, b.bell) }},
		{"the same HAND twice", func(p *rawPeer, b bundle) {
			p.send(node)
			m := hand(1, good)
			m.Nonce = b.nonce
			p.send(m, b.seg, b.bell)
			p.send(m, b.seg, b.bell)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := dialPeer(t, s)
			b := newBundle(t, good)
			tt.say(p, b)
			b.handedOver()
			select {
			case err := <-p.done:
				if tt.name != "nothing but the end" && err == nil {
					t.Error("it was not told why")
				}
			case <-time.After(3 * time.Minute):
				t.Fatal("still a peer")
			}
			brokertest.Eventually(t, "the descriptors are closed", b.ended)
			unix.Close(b.bell0)
		})
	}
	// What is only mistaken, or late, is answered.
	p := dialPeer(t, s)
	p.send(node)
	b := newBundle(t, good)
	for i, tt := range []struct {
		key   wire.Key
		nonce wire.Nonce
		want  wire.Reason
	}{
		{good, wire.Nonce{1}, wire.BadSegment},
		{wire.Key{Client: ap("10.1.1.1:5"), Server: here}, b.nonce, wire.BadSegment},
		{wire.Key{Client: good.Client, Server: ap("127.0.0.1:80")}, b.nonce, wire.NoListener},
		{wire.Key{Client: good.Client, Server: netip.AddrPortFrom(addrA, here.Port()-1)}, b.nonce, wire.BadSegment},
		{wire.Key{Client: ap("[::1]:5"), Server: here}, b.nonce, wire.NoListener},
	} {
		m := hand(uint32(i), tt.key)
		m.Nonce = tt.nonce
		p.send(m, b.seg, b.bell)
		if got := p.result(); got.ID != uint32(i) || got.Reason != tt.want {
			t.Errorf("%v: %+v", tt.key, got)
		}
	}
	p.send(peerMessage{Type: peerRetract, ID: 77})
	p.send(peerMessage{Type: peerResult, ID: 77, Reason: wire.Expired})
	for i, k := range []wire.Key{
		{Client: ap("10.1.1.1:5"), Server: here},                                // not the peer's
		{Client: good.Client, Server: netip.AddrPortFrom(addrA, here.Port()-1)}, // nobody listens
	} {
		far := newBundle(t, k)
		m := hand(uint32(100+i), k)
		m.Nonce = far.nonce
		p.send(m, far.seg, far.bell)
		far.handedOver()
		if got := p.result(); got.ID != uint32(100+i) || got.Reason != wire.NoListener {
			t.Errorf("%v: %+v", k, got)
		}
		brokertest.Eventually(t, "the descriptors are closed", far.ended)
		unix.Close(far.bell0)
	}
	b.handedOver()
	brokertest.Eventually(t, "the descriptors are closed", b.ended)
	unix.Close(b.bell0)
	p.conn.Close()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
}

// TestPeerNoise sends a broker noise for its peers.
func TestPeerNoise(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}})
	r := rand.New(rand.NewPCG(3, 4))
	tr := brokertest.NewTracer(t)
	for range 200 {
		p := dialPeer(t, s)
		if r.IntN(3) > 0 {
			p.send(peerMessage{Type: peerNode, Node: 2, Addrs: []netip.Addr{addrB}})
		}
		for range r.IntN(10) {
			all := peerMessages()
			b, _ := all[r.IntN(len(all))].AppendBinary(nil)
			if r.IntN(2) == 0 {
				b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
			}
			var fds []int
			for range r.IntN(4) {
				fds = append(fds, tr.W)
			}
			if _, _, err := p.conn.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
				break
			}
		}
		p.conn.Close()
		<-p.done
	}
	tr.ClosedEverywhere()
}

package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/relay"
	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
)

// newHosts is newFabric with the nodes on two hosts, whose brokers know of each other by
// the fabric. rule says what goes through it; hardware: RDMA hardware joins them.
func newHosts(t *testing.T, rule func(netip.AddrPort) bool, hardware bool) (f fabricOf, engines [2]*relay.Engine) {
	t.Helper()
	return newHostsHearing(t, rule, hardware, (*Server).Hear)
}

// newHostsHearing is newHosts with hear in the place of Server.Hear.
func newHostsHearing(t *testing.T, rule func(netip.AddrPort) bool, hardware bool, hear func(*Server, fabric.NodeID, []byte) error) (f fabricOf, engines [2]*relay.Engine) {
	t.Helper()
	checkFDs(t)
	net0 := mem.NewFabric()
	var servers [2]atomic.Pointer[Server]
	for i := range engines {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(i + 1)})
		if err == nil {
			err = net0.Attach(card)
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := relay.New(relay.Config{
			NIC: card,
			Offered: func(o relay.Offer) {
				servers[i].Load().Receive(o.Node, o.ID, o.Info.Nonce, wire.Key{Client: o.Info.Client, Server: o.Info.Server}, o.Segment, o.Bell)
			},
			Note: func(from fabric.NodeID, b []byte) {
				if err := hear(servers[i].Load(), from, b); err != nil && !errors.Is(err, wire.ErrClosed) {
					t.Error(err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		engines[i] = e
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		t.Cleanup(func() {
			cancel()
			if err := errors.Join(<-done, e.Close(), card.Close()); err != nil {
				t.Error(err)
			}
		})
		s, _ := startServer(t, Config{Node: uint16(i + 1), Addrs: []netip.Addr{[]netip.Addr{addrA, addrB}[i]}, Carrier: e, Carried: rule})
		servers[i].Store(s)
		go func() { done <- e.Run(ctx) }()
	}
	f.a, f.b = servers[0].Load(), servers[1].Load()
	f.ca, f.cb = dialClient(t, client.Config{Path: f.a.Path()}), dialClient(t, client.Config{Path: f.b.Path()})
	if err := errors.Join(f.a.Meet(2, hardware), f.b.Meet(1, hardware)); err != nil {
		t.Fatal(err)
	}
	f.connect(t)
	return f, engines
}

// offer has A's program offer a connection.
func (f fabricOf) offer(t *testing.T) (e *segment.End, refused chan wire.Reason) {
	t.Helper()
	info := segment.Info{Nonce: segment.NewNonce(), Client: f.conn.key.Client, Server: f.conn.key.Server}
	seg, err := segment.Create(info, segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if e, err = segment.NewEnd(seg, segment.Client, bells[0], nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	refused = make(chan wire.Reason, 1)
	err = f.ca.Offer(client.Socket{Conn: rawOf(t, f.conn.client)}, info.Nonce, seg.Fd(), bells[1], func(r wire.Reason) { refused <- r })
	if err = errors.Join(err, unix.Close(bells[1])); err != nil {
		t.Fatal(err)
	}
	return e, refused
}

func everything(netip.AddrPort) bool { return true }
func nothing(netip.AddrPort) bool    { return false }

// A connection between hosts is offered by one broker and claimed from the other, and its
// bytes go from one segment to the other; so again after the brokers have met anew.
func TestHosts(t *testing.T) {
	f, _ := newHosts(t, everything, false)
	for round := range 3 {
		c, refused := f.offer(t)
		f.shown(t, true)
		r := claimFor(t, f.cb, f.conn)
		if r.err != nil || r.Key != f.conn.key || [16]byte(r.Nonce) != c.Segment().Info().Nonce {
			t.Fatalf("%+v", r)
		}
		s := attach(t, r)
		brokertest.Eventually(t, "attached", func() bool { return c.Attached() })
		if err := c.Promote(0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Send([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		brokertest.Eventually(t, "received", func() bool {
			if _, ok := s.PromotedAt(); !ok {
				return false
			}
			n, err := s.Recv(buf)
			if err != nil && err != segment.ErrAgain && err != io.EOF {
				t.Error(err)
			}
			return string(buf[:n]) == "hello"
		})
		f.nothingLeft(t)
		select {
		case r := <-refused:
			t.Errorf("refused: %v", r)
		default:
		}
		_ = c.Close(false)
		if round == 1 { // the link was down
			f.a.Part(2)
			f.b.Part(1)
			brokertest.Eventually(t, "A has forgotten the listener", func() bool { return !f.ca.Listener(f.port) })
			if err := errors.Join(f.a.Meet(2, false), f.b.Meet(1, false)); err != nil {
				t.Fatal(err)
			}
			brokertest.Eventually(t, "A knows of the listener again", func() bool { return f.ca.Listener(f.port) })
		}
	}
}

// attach has a program use the segment that it was granted.
func attach(t *testing.T, r result) *segment.End {
	t.Helper()
	seg, err := segment.Map(r.Segment)
	if err != nil {
		t.Fatal(err)
	}
	bell, err := unix.FcntlInt(uintptr(r.Bell), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := segment.NewEnd(seg, segment.Server, bell, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(func() { _ = s.Close(false); seg.Retire() }))
	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Where RDMA hardware joins two hosts no rule is wanted, and both programs can tell why; with a
// rule, that is the reason.
func TestHostsByHardware(t *testing.T) {
	for _, ruled := range []bool{false, true} {
		rule := nothing
		if ruled {
			rule = everything
		}
		f, _ := newHosts(t, rule, true)
		c, refused := f.offer(t)
		f.shown(t, true)
		r := claimFor(t, f.cb, f.conn)
		if r.err != nil {
			t.Fatal(r.err)
		}
		s := attach(t, r)
		brokertest.Eventually(t, "attached", func() bool { return c.Attached() })
		for _, e := range []*segment.End{c, s} {
			if !e.Relayed() || e.Hardware() == ruled {
				t.Errorf("rule %v: through a node %v, by hardware %v", ruled, e.Relayed(), e.Hardware())
			}
		}
		f.nothingLeft(t)
		select {
		case r := <-refused:
			t.Errorf("refused: %v", r)
		default:
		}
	}
}

// Without a rule that asks for the fabric nothing is offered to another host.
func TestHostsWithoutRule(t *testing.T) {
	f, engines := newHosts(t, nothing, false)
	_, refused := f.offer(t)
	reason(t, refused, wire.NoRule)
	f.nothingLeft(t)
	if s := engines[0].Stats(); s.Opened != 0 {
		t.Errorf("%+v", s)
	}
}

// What a program takes back, or nobody claims, ends at both brokers.
func TestHostsOfferEnds(t *testing.T) {
	f, _ := newHosts(t, everything, false)
	c, _ := f.offer(t)
	f.shown(t, true)
	f.ca.Withdraw(wire.Nonce(c.Segment().Info().Nonce))
	_ = c.Close(false)
	f.shown(t, false)
	f.nothingLeft(t)

	c, refused := f.offer(t)
	f.shown(t, true)
	f.b.mu.Lock()
	for _, o := range f.b.offers {
		f.b.endOfferLocked(o, wire.Expired)
	}
	f.b.mu.Unlock()
	reason(t, refused, wire.Expired)
	brokertest.Eventually(t, "the doorbell has ended", func() bool { c.Awake(); return c.Err() != nil })
	f.nothingLeft(t)
}

// Brokers meet again when one has met the other anew, also if the answer is lost: what comes of a
// session that is over is no breach, and has the other one answer.
func TestHostsMeetAgain(t *testing.T) {
	for _, lost := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d lost", lost), func(t *testing.T) {
			var lose atomic.Int32
			f, _ := newHostsHearing(t, everything, false, func(s *Server, from fabric.NodeID, b []byte) error {
				if from == 1 && peerType(b[sessionLen+peerTypeOff]) == peerNode && lose.Add(-1) >= 0 {
					return nil
				}
				return s.Hear(from, b)
			})
			brokertest.Eventually(t, "A knows of the listener", func() bool { return f.ca.Listener(f.port) })
			says := func(typ peerType) { // A, in its session, whatever it knows of B's
				f.a.hostsMu.Lock()
				defer f.a.hostsMu.Unlock()
				if err := (hostWay{f.a.cfg.Carrier, 2, f.a.hosts[2].sessionNumber, peerVersions.Newest, relay.Versions.Newest}).send(peerMessage{Type: typ, ID: 77}); err != nil {
					t.Error(err)
				}
			}
			lose.Store(int32(lost))
			f.b.Part(1)
			says(peerStands) // there is no session
			if err := f.b.Meet(1, false); err != nil {
				t.Fatal(err)
			}
			brokertest.Eventually(t, "B hears of A", func() bool {
				says(peerRetract)
				return f.b.peerOf(1) != nil
			})
			// A or B may hear of the other's last session only now: what was offered before has
			// ended, by an answer or by its doorbell, and the client offers again. So it does where
			// A's carrier has not heard of B's new session yet: too many.
			c, refused := f.offer(t)
			brokertest.Eventually(t, "the offer is shown at B", func() bool {
				c.Awake()
				ended := c.Err() != nil
				select {
				case r := <-refused:
					if r != wire.Unreachable && r != wire.NoListener && r != wire.TooMany {
						t.Fatalf("refused: %v", r)
					}
					ended = true
				default:
				}
				if ended {
					c, refused = f.offer(t)
				}
				_, may := f.cb.MayHaveOffer(f.conn.key.Bucket(), 0)
				return may
			})
		})
	}
}

// A node says nothing for another one, and begins by saying who it is.
func TestHostsHostile(t *testing.T) {
	f, _ := newHosts(t, everything, false)
	say := func(session byte, m peerMessage) error {
		b, err := m.AppendBinary([]byte{session, 0, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		return f.b.Hear(1, b)
	}
	for what, err := range map[string]error{
		"short":        f.b.Hear(1, []byte{1, 2}),
		"noise":        f.b.Hear(1, make([]byte, 30)),
		"HAND":         say(9, peerMessage{Type: peerHand, Client: f.conn.key.Client, Server: f.conn.key.Server}),
		"another node": say(9, peerMessage{Type: peerNode, Node: 7}),
	} {
		if !errors.Is(err, wire.ErrRule) && !errors.Is(err, wire.ErrMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := f.b.Hear(77, make([]byte, 12)); err == nil {
		t.Error("noise of an unknown node")
	}
}

// Brokers of two hosts whose carriers have different versions offer nothing to each other, and say
// which versions they have.
func TestHostsOfTwoVersions(t *testing.T) {
	f, engines := newHosts(t, func(netip.AddrPort) bool { return true }, false)
	b, err := peerMessage{Type: peerNode, Node: 2}.AppendBinary(make([]byte, sessionLen))
	if err != nil {
		t.Fatal(err)
	}
	newest, above := peerVersions.Newest, peerVersions.Newest+1
	for v, want := range map[uint8]string{
		newest:                           fmt.Sprintf("node 2 has version 0 of what carries direct sockets between hosts, this one %v: update one of them", relay.Versions),
		(relay.Versions.Newest+1)<<4 | 2: fmt.Sprintf("node 2 has version %d of what carries", relay.Versions.Newest+1),
		relay.Versions.Oldest<<4 | above: fmt.Sprintf("node 2: broker: malformed message: version %d, this speaks %v: update one of them", above, peerVersions),
	} {
		b[sessionLen+peerVersionOff] = v
		if err := f.a.Hear(2, b); !errors.Is(err, wire.ErrMessage) || !strings.Contains(err.Error(), want) {
			t.Errorf("version %d: %v", v, err)
		}
	}
	if engines[0].Stats().Opened != 0 {
		t.Error("a connection was offered")
	}
}

// An offer that the Carrier does not take is refused at once, and not when nobody has answered for
// long enough.
func TestHostsNotCarried(t *testing.T) {
	f, engines := newHosts(t, everything, false)
	engines[0].GoBack(context.Background()) // it carries nothing new
	_, refused := f.offer(t)
	if why := <-refused; why != wire.Unreachable {
		t.Error(why)
	}
	if n := f.a.Stats().OffersRefused; n != 1 {
		t.Errorf("%d offers were refused", n)
	}
}

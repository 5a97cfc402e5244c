package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/relay"
	"exnet/fabric"
	"exnet/node/rpc"
)

// versionsTests are ranges that the other side may say, with the version that both speak then; 0:
// none. Those of one version are of releases before there were ranges.
func versionsTests(ours rpc.Versions) map[rpc.Versions]uint8 {
	oldest, newest := ours.Oldest, ours.Newest
	return map[rpc.Versions]uint8{
		{Oldest: oldest, Newest: 0}:              oldest,
		{Oldest: oldest, Newest: 1}:              oldest,
		{Oldest: oldest, Newest: newest}:         newest,
		{Oldest: newest, Newest: newest + 1}:     newest,
		{Oldest: 1, Newest: 99}:                  newest,
		{Oldest: oldest - 1, Newest: 0}:          0,
		{Oldest: newest + 1, Newest: newest + 5}: 0,
	}
}

// A broker and a client whose versions overlap speak the newest that both know, and nothing else.
func TestVersionsOverlap(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{})
	for says, agreed := range versionsTests(wire.Versions) {
		for _, breach := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d to %d, breach=%v", says.Oldest, says.Newest, breach), func(t *testing.T) {
				c := dialRaw(t, s.Path())
				stats := statsFD(t, 4)
				c.send(wire.Message{Type: wire.Hello, Version: says.Oldest, ID: uint32(says.Newest), Program: "raw"}, stats)
				unix.Close(stats)
				if agreed == 0 {
					c.disconnected()
					return
				}
				m, fds := c.next()
				fds.Close()
				if m.Type != wire.Welcome || m.Version != agreed {
					t.Errorf("%+v, want version %d", m, agreed)
				}
				asked := agreed
				if breach {
					asked = wire.Versions.Oldest + wire.Versions.Newest - agreed
				}
				c.send(wire.Message{Type: wire.Claim, Version: asked, ID: 7}, stdin(t))
				if breach {
					c.disconnected()
				} else if m, _ := c.next(); m.Type != wire.None || m.Version != agreed || m.ID != 7 {
					t.Errorf("%+v, want NONE of version %d", m, agreed)
				}
			})
		}
	}
}

// stdin is a descriptor of no socket.
func stdin(t *testing.T) int {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Brokers whose versions overlap speak the newest that both know, on one host and on two. On one
// host their Carriers speak what that version says.
func TestPeersOverlap(t *testing.T) {
	checkFDs(t)
	s, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}})
	carrier := &speaker{spoke: make(chan uint8, 1)}
	s.cfg.Carrier = carrier
	c := dialClient(t, client.Config{Path: s.Path()})
	ln := listen(t, "tcp4", "127.0.1.1:0")
	c.Listen(client.Socket{Conn: rawOf(t, ln)}, nil)
	brokertest.Eventually(t, "the listener is shown", func() bool { return c.Listener(port(ln.Addr())) })
	for says, agreed := range versionsTests(peerVersions) {
		t.Run(fmt.Sprintf("%d to %d", says.Oldest, says.Newest), func(t *testing.T) {
			p := dialPeer(t, s)
			if m := p.next(peerNode); m.Version != peerVersions.Oldest || m.ID != uint32(peerVersions.Newest) {
				t.Errorf("%+v", m)
			}
			p.send(peerMessage{Type: peerNode, Version: says.Oldest, ID: uint32(says.Newest), Node: 2, Addrs: []netip.Addr{addrB}})
			if agreed != 0 {
				if m := p.next(peerPort); m.Version != agreed {
					t.Errorf("%+v, want version %d", m, agreed)
				}
				want := carrier.Versions().Oldest
				if agreed >= 4 {
					want = carrier.Versions().Newest
				}
				if spoke := <-carrier.spoke; spoke != want {
					t.Errorf("the Carriers speak %d, want %d", spoke, want)
				}
				p.send(peerMessage{Type: peerRetract, Version: peerVersions.Oldest + peerVersions.Newest - agreed})
			}
			if err := <-p.done; err == nil || errors.Is(err, wire.ErrRule) != (agreed != 0) {
				t.Errorf("the session ends: %v", err)
			}
		})
	}
}

// The last release says one version. A broker of another host that is of that release is spoken to
// in it.
func TestHostsOverlap(t *testing.T) {
	oldest := peerVersions.Oldest
	f, _ := newHostsHearing(t, everything, false, func(s *Server, from fabric.NodeID, b []byte) error {
		if v := b[sessionLen+peerVersionOff]; v != relay.Versions.Oldest<<carrierShift|oldest {
			t.Errorf("%v of version %#x", peerType(b[sessionLen+peerTypeOff]), v)
		}
		if peerType(b[sessionLen+peerTypeOff]) == peerNode {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[sessionLen+peerIDOff:], 0)
		}
		return s.Hear(from, b)
	})
	brokertest.Eventually(t, "A knows of the listener", func() bool { return f.ca.Listener(f.port) })
	c, _ := f.offer(t)
	f.shown(t, true)
	if r := claimFor(t, f.cb, f.conn); r.err != nil || [16]byte(r.Nonce) != c.Segment().Info().Nonce {
		t.Errorf("%+v", r)
	}
	for _, v := range []uint8{
		relay.Versions.Oldest<<carrierShift | peerVersions.Newest,
		relay.Versions.Newest<<carrierShift | oldest,
	} {
		b, err := peerMessage{Type: peerRetract, Version: oldest, ID: 1}.AppendBinary(make([]byte, sessionLen))
		if err != nil {
			t.Fatal(err)
		}
		b[sessionLen+peerVersionOff] = v
		brokertest.Eventually(t, "there is a session", func() bool {
			f.a.hostsMu.Lock()
			defer f.a.hostsMu.Unlock()
			h := f.a.hosts[2]
			binary.LittleEndian.PutUint32(b, h.far)
			return h.peer != nil
		})
		if err := f.a.Hear(2, b); !errors.Is(err, wire.ErrRule) {
			t.Errorf("a message of version %#x, which was not agreed: %v", v, err)
		}
		if err := f.a.Meet(2, false); err != nil {
			t.Error(err)
		}
	}
}

// Carriers whose versions overlap are told to speak the newest that both know.
func TestCarriersOverlap(t *testing.T) {
	s, _ := startServer(t, Config{Node: 1, Addrs: []netip.Addr{addrA}})
	c := &speaker{spoke: make(chan uint8, 1)}
	s.cfg.Carrier = c
	if err := s.Meet(2, false); err != nil {
		t.Fatal(err)
	}
	if said := c.said[sessionLen:]; said[peerVersionOff]>>carrierShift != 4 || said[carrierNewestOff] != 6 {
		t.Errorf("NODE says %x", said)
	}
	session := byte(0)
	for says, agreed := range map[[2]uint8]uint8{{4, 0}: 4, {3, 5}: 5, {5, 9}: 6, {6, 6}: 6, {1, 3}: 0, {7, 9}: 0} {
		session++
		b, err := peerMessage{Type: peerNode, Node: 2, Addrs: []netip.Addr{addrB}}.AppendBinary([]byte{session, 1, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		b[sessionLen+peerVersionOff] |= says[0] << carrierShift
		b[sessionLen+carrierNewestOff] = says[1]
		err = s.Hear(2, b)
		if agreed == 0 {
			if !errors.Is(err, wire.ErrMessage) {
				t.Errorf("%v: %v", says, err)
			}
		} else if spoke := <-c.spoke; err != nil || spoke != agreed {
			t.Errorf("%v: speaks %d, want %d: %v", says, spoke, agreed, err)
		}
	}
}

// speaker is a Carrier that notes what it is told.
type speaker struct {
	spoke chan uint8
	said  []byte // the last message
}

func (*speaker) Versions() rpc.Versions { return rpc.Versions{Oldest: 4, Newest: 6} }

func (c *speaker) Speak(_ fabric.NodeID, version uint8) { c.spoke <- version }

func (c *speaker) Send(_ fabric.NodeID, b []byte) error {
	c.said = bytes.Clone(b)
	return nil
}

func (*speaker) Offer(fabric.NodeID, uint32, bool, int, int) error { return nil }

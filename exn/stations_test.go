package exn

import (
	"encoding/binary"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
)

// guest returns the MAC address of the n-th virtual machine.
func guest(n int) arp.MAC {
	m := arp.MAC{0x52, 0x54}
	binary.BigEndian.PutUint32(m[2:], uint32(n))
	return m
}

// testStations has a clock that does not run.
func testStations() (*stations, *time.Time) {
	t, now := newStations(), time.Unix(1, 0)
	t.now = func() time.Time { return now }
	return t, &now
}

// +checklocksignore: nobody else has the table
func TestStations(t *testing.T) {
	s, now := testStations()
	if _, ok := s.nodeOf(guest(1)); ok {
		t.Error("known before it sent anything")
	}
	s.addStation(guest(1), 7)
	s.addStation(guest(2), 8)
	*now = now.Add(stationAge - 1)
	s.addStation(guest(2), 8)
	if n, ok := s.nodeOf(guest(1)); !ok || n != 7 {
		t.Errorf("behind node %d, %v, want 7", n, ok)
	}
	*now = now.Add(2)
	if _, ok := s.nodeOf(guest(1)); ok {
		t.Error("known although it was silent for too long")
	}
	if n, ok := s.nodeOf(guest(2)); !ok || n != 8 {
		t.Errorf("behind node %d, %v, want 8", n, ok)
	}
	s.addStation(guest(2), 9)
	if n, _ := s.nodeOf(guest(2)); n != 9 {
		t.Errorf("it moved to node 9, and is behind %d", n)
	}
	s.dropSilent()
	if len(s.known) != 1 || len(s.count) != 1 || s.count[9] != 1 {
		t.Errorf("%v and %v are left, want one", s.known, s.count)
	}
	s.dropNode(9)
	if len(s.known)+len(s.count)+len(s.swept) != 0 {
		t.Errorf("%v, %v, %v are left of a node that is gone", s.known, s.count, s.swept)
	}
}

// A node that makes up MAC addresses has its share of the table and no more, and takes
// nothing of that of others.
//
// +checklocksignore: nobody else has the table
func TestStationsHostile(t *testing.T) {
	s, now := testStations()
	s.addStation(guest(-1), 8)
	learned := 0
	for n := range 10 * maxStations {
		if s.addStation(guest(n), 7) {
			learned++
		}
	}
	if learned != maxStations || len(s.known) != maxStations+1 {
		t.Errorf("%d learned, %d known, want %d behind the node", learned, len(s.known), maxStations)
	}
	if n, ok := s.nodeOf(guest(-1)); !ok || n != 8 {
		t.Error("another node's station is gone")
	}
	// Others take their place when they are silent.
	*now = now.Add(stationAge + 1)
	if !s.addStation(guest(20*maxStations), 7) || s.count[7] != 1 {
		t.Errorf("%d stations, want the new one", s.count[7])
	}
}

// sendAs sends a frame with a source MAC address of its own.
func (n *testNode) sendAs(t *testing.T, src, dst arp.MAC, num uint32) {
	t.Helper()
	f := n.frame(dst, num, 200)
	copy(f[sourceOff:], src[:])
	if err := n.TransmitCopy(exteth.Offload{}, f); err != nil {
		t.Error(err)
	}
}

func TestEthernet(t *testing.T) {
	net := startNet(t, 3, Config{Ethernet: true})
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	expect := func(who *testNode, src fabric.NodeID, num uint32) {
		t.Helper()
		var got []gotFrame
		eventually(t, "a frame comes", func() bool { got = append(got, who.frames.Take()...); return len(got) > 0 })
		if n, ok := number(got[0].Bytes); len(got) != 1 || got[0].Src != src || n != num || !ok {
			t.Errorf("node %d: %d frames, the first from %d: %d, want %d from %d", who.id, len(got), got[0].Src, n, num, src)
		}
	}
	a.sendAs(t, guest(1), guest(2), 1) // nobody knows guest 2
	expect(b, a.id, 1)
	expect(c, a.id, 1)
	if n := a.Stats().TxFlooded; n != 1 {
		t.Errorf("%d frames went to all, want 1", n)
	}
	b.sendAs(t, guest(2), guest(1), 2) // all know guest 1
	expect(a, b.id, 2)
	a.sendAs(t, guest(1), guest(2), 3)
	expect(b, a.id, 3)
	c.sendAs(t, c.MAC(), guest(2), 4) // c has heard nothing of it
	expect(b, c.id, 4)
	expect(a, c.id, 4)
	if n := b.Stats().TxFlooded + a.Stats().TxFlooded + c.Stats().TxFlooded; n != 2 {
		t.Errorf("%d frames went to all, want 2", n)
	}
	found := make(map[arp.MAC]fabric.NodeID)
	for s := range a.Stations() {
		found[s.MAC] = s.Node
	}
	if len(found) != 1 || found[guest(2)] != b.id {
		t.Errorf("stations %v, want guest 2 behind node %d", found, b.id)
	}
}

// What says that it comes from another node, or from a group, goes nowhere and is not learned.
func TestEthernetForged(t *testing.T) {
	net := startNet(t, 3, Config{Ethernet: true})
	a, b := net.nodes[0], net.nodes[1]
	for i, src := range []arp.MAC{net.mac(3), net.mac(77), b.MAC(), arp.Broadcast(), {0x33, 0x33, 0, 0, 0, 1}} {
		a.sendAs(t, src, b.MAC(), uint32(i))
	}
	eventually(t, "the frames are counted", func() bool { return b.Stats().RxForged == 5 })
	if got := b.frames.Take(); len(got) != 0 {
		t.Errorf("%d forged frames came through", len(got))
	}
	for s := range b.Stations() {
		t.Errorf("learned %v", s)
	}
}

// A node that does not come back is forgotten with all that was behind it.
func TestEthernetGone(t *testing.T) {
	net := startNet(t, 3, Config{Ethernet: true, AwayTime: time.Millisecond})
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	b.sendAs(t, guest(2), a.MAC(), 1)
	eventually(t, "the frame comes", func() bool { return len(a.frames.Take()) == 1 })
	b.down()
	if err := net.fabric.Detach(b.nic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is sent to a node that is gone", func() bool {
		return a.TransmitCopy(exteth.Offload{}, a.frame(guest(2), 2, 200)) != nil
	})
	a.sendAs(t, a.MAC(), guest(2), 3)
	eventually(t, "the frame goes to all", func() bool { return len(c.frames.Take()) == 1 })
}

// A VLAN tag is no part of the packet that the MTU bounds.
func TestEthernetTag(t *testing.T) {
	net := startNet(t, 2, Config{Ethernet: true, MTU: 1500})
	a, b := net.nodes[0], net.nodes[1]
	for _, c := range []struct {
		etherType uint16
		packet    int
		fits      bool
	}{{0x8100, 1504, true}, {0x88a8, 1504, true}, {0x8100, 1505, false}, {0x88b5, 1500, true}, {0x88b5, 1501, false}} {
		f := a.frame(b.MAC(), 1, exteth.EthernetHeaderLen+c.packet)
		binary.BigEndian.PutUint16(f[etherTypeOff:], c.etherType)
		if err := a.TransmitCopy(exteth.Offload{}, f); (err == nil) != c.fits {
			t.Errorf("type %#x with %d bytes: %v", c.etherType, c.packet, err)
		}
	}
}

// A station that moves behind a node that has its share is not looked for where it was.
//
// +checklocksignore: nobody else has the table
func TestStationsMoveToFull(t *testing.T) {
	s, _ := testStations()
	for n := range maxStations {
		s.addStation(guest(n), 7)
	}
	moved := guest(maxStations)
	s.addStation(moved, 8)
	if s.addStation(moved, 7) {
		t.Error("node 7 has more than its share")
	}
	if n, ok := s.nodeOf(moved); ok {
		t.Errorf("frames go to node %d, where it was, and not to all", n)
	}
	if !s.addStation(guest(0), 7) || len(s.known) != maxStations || len(s.count) != 1 {
		t.Errorf("%d stations behind %d nodes", len(s.known), len(s.count))
	}
}

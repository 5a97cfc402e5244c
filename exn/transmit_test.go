package exn

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/mtu"
	"exnet/napi"
)

// A frame goes where its destination address says.
func TestTransmit(t *testing.T) {
	net := startNet(t, 3, Config{MTU: 1500})
	a, b, c := net.nodes[0], net.nodes[1], net.nodes[2]
	for _, tt := range []struct {
		name string
		dst  arp.MAC
		to   []*testNode
	}{
		{"unicast", net.mac(2), []*testNode{b}},
		{"to itself", net.mac(1), []*testNode{a}},
		{"broadcast", arp.Broadcast(), []*testNode{b, c}},
		{"IPv4 multicast", arp.MAC{0x01, 0x00, 0x5e, 0, 0, 1}, []*testNode{b, c}},
		{"IPv6 multicast", arp.MAC{0x33, 0x33, 0, 0, 0, 1}, []*testNode{b, c}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{60, 480, 481, 1514} {
				want := a.frame(tt.dst, uint32(size), size)
				// The parts of the frame are copied.
				parts := [][]byte{bytes.Clone(want[:14]), bytes.Clone(want[14:40]), nil, bytes.Clone(want[40:])}
				if err := a.TransmitCopy(exteth.Offload{}, parts...); err != nil {
					t.Fatal(err)
				}
				clear(parts[3])
				for _, n := range tt.to {
					var got []gotFrame
					eventually(t, "a frame", func() bool { got = n.frames.Take(); return len(got) > 0 })
					if len(got) != 1 || got[0].Src != a.id || !bytes.Equal(got[0].Bytes, want) {
						t.Errorf("%d bytes: node %d got %d frames, not the one sent", size, n.id, len(got))
					}
				}
			}
			for _, n := range net.nodes {
				if got := n.frames.Take(); len(got) != 0 {
					t.Errorf("node %d got %d frames too many", n.id, len(got))
				}
			}
		})
	}
	for _, n := range net.nodes {
		n.checkBuffers(t)
	}
}

// What cannot be sent is counted, and its buffer free again.
func TestTransmitRefused(t *testing.T) {
	net := startNet(t, 2, Config{MTU: 1500})
	a, b := net.nodes[0], net.nodes[1]
	foreign := arp.MAC{0x02, 1, 2, 3, 0, 2}
	long := exteth.Offload{Flags: 1, GSOType: exteth.GSOTCPv4, GSOSize: 1448, HdrLen: 40, CsumStart: 20, CsumOffset: 16}
	for _, tt := range []struct {
		name string
		off  exteth.Offload
		part []byte
		want error
		get  func(Stats) uint64
	}{
		{"another network's address", exteth.Offload{}, a.frame(foreign, 1, 100), arp.ErrForeign, func(s Stats) uint64 { return s.TxUnknownMAC }},
		{"over the MTU", exteth.Offload{}, a.frame(net.mac(2), 1, 1515), ErrTooLong, func(s Stats) uint64 { return s.TxTooLong }},
		{"over the MTU, to a group", exteth.Offload{}, a.frame(arp.Broadcast(), 1, 1515), ErrTooLong, func(s Stats) uint64 { return s.TxTooLong }},
		{"over any packet's length", exteth.Offload{}, make([]byte, 1<<17), ErrTooLong, func(s Stats) uint64 { return s.TxTooLong }},
		{"without a header", exteth.Offload{}, make([]byte, 13), ErrTooShort, func(s Stats) uint64 { return s.TxTooShort }},
		{"empty", exteth.Offload{}, nil, ErrTooShort, func(s Stats) uint64 { return s.TxTooShort }},
		{"no such node", exteth.Offload{}, a.frame(net.mac(77), 1, 100), fabric.ErrNoRoute, func(s Stats) uint64 { return s.Port.TxNoRoute }},
		{"no such node, by rendezvous", exteth.Offload{}, a.frame(net.mac(77), 1, 1000), fabric.ErrNoRoute, func(s Stats) uint64 { return s.Port.TxNoRoute }},
		{"segments to a group", long, a.frame(arp.Broadcast(), 1, 3000), nil, func(s Stats) uint64 { return s.Port.TxBadGroup }},
	} {
		before := tt.get(a.Stats())
		if err := a.TransmitCopy(tt.off, tt.part); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if got := tt.get(a.Stats()) - before; got != 1 {
			t.Errorf("%s: counted %d times", tt.name, got)
		}
	}
	a.checkBuffers(t)

	// A packet that is still to be segmented may be longer than the MTU.
	want := a.frame(net.mac(2), 7, 65549)
	if err := a.TransmitCopy(long, want); err != nil {
		t.Fatal(err)
	}
	if got := b.frames.Take(); len(got) != 1 || got[0].Off != long || !bytes.Equal(got[0].Bytes, want) {
		t.Errorf("%d frames, not the segments", len(got))
	}
	a.checkBuffers(t)
}

func TestNoBuffer(t *testing.T) {
	net := startNet(t, 1, Config{Buffers: 4})
	a := net.nodes[0]
	var held []*exteth.TxBuffer
	for range 4 {
		held = append(held, a.Alloc())
	}
	if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(1), 1, 100)); !errors.Is(err, ErrNoBuffer) {
		t.Errorf("without a buffer: %v", err)
	}
	for _, b := range held {
		a.Free(b)
	}
	select {
	case <-a.ready:
	default:
		t.Error("OnReady was not called")
	}
	a.checkBuffers(t)
}

func TestConfig(t *testing.T) {
	card, err := nic.New(nic.Config{Node: 9})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"no NIC", Config{}, false},
		{"defaults", Config{NIC: card}, true},
		{"least MTU", Config{NIC: card, MTU: mtu.MinIPv6}, true},
		{"MTU too small", Config{NIC: card, MTU: 1279}, false},
		{"MTU too large", Config{NIC: card, MTU: 65536}, false},
		{"bad prefix", Config{NIC: card, MACPrefix: arp.Prefix{1, 2, 3, 4}}, false},
		{"threshold too small", Config{NIC: card, EagerThreshold: 119}, false},
		{"everything eager", Config{NIC: card, EagerThreshold: 65549}, true},
		{"threshold over any frame", Config{NIC: card, EagerThreshold: 65550}, false},
		{"too few buffers", Config{NIC: card, Buffers: 3}, false},
		{"negative stall time", Config{NIC: card, StallTime: -1}, false},
		{"budget too large", Config{NIC: card, VELOBudget: napi.MaxBudget + 1}, false},
		{"negative budget", Config{NIC: card, RMABudget: -1}, false},
		{"VPID out of range", Config{NIC: card, VPID: 256}, false},
		{"another VPID", Config{NIC: card, VPID: 255}, true},
	} {
		i, err := New(tt.cfg)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil {
			continue
		}
		if i.MTU() == 0 || i.EagerThreshold() == 0 || i.NodeID() != 9 || i.MAC() != [6]byte{0x2e, 0x87, 4, 7, 0, 9} {
			t.Errorf("%s: MTU %d, threshold %d, node %d, MAC %x", tt.name, i.MTU(), i.EagerThreshold(), i.NodeID(), i.MAC())
		}
		if err := i.Close(); err != nil {
			t.Errorf("%s: Close: %v", tt.name, err)
		}
	}
	// Refused or closed, none keeps the VPID or memory.
	if s := card.Stats(); s.ATU.Regions != 0 {
		t.Errorf("%d regions are left", s.ATU.Regions)
	}
}

func TestRun(t *testing.T) {
	card, err := nic.New(nic.Config{Node: 9})
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(Config{NIC: card})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(context.Background()); err == nil {
		t.Error("Run without a receiver")
	}
	i.SetReceiver(new(testNode))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- i.Run(ctx) }()
	eventually(t, "Run polls", func() bool { return i.Stats().NAPI.Sources[1].Polls > 0 })
	if err := i.Run(ctx); !errors.Is(err, napi.ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := i.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	b := i.Alloc()
	b.SetPacket(100)
	if err := i.Transmit(b); err == nil {
		t.Error("a frame was sent after Close")
	}
}

// Counters have names, and the interface's hold those of what lies below.
func TestStats(t *testing.T) {
	net := startNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	for range 10 {
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the frames", func() bool { return b.Stats().Port.RxEager == 10 })
	s := b.Stats()
	if s.NIC.VELO.Received != 10 || s.NAPI.Sources[0].Frames != 10 || s.NAPI.Sources[0].Bytes != 1000 {
		t.Errorf("%d messages, %d frames and %d bytes polled", s.NIC.VELO.Received, s.NAPI.Sources[0].Frames, s.NAPI.Sources[0].Bytes)
	}
	names := ""
	for name := range s.Counters.All() {
		names += name + " "
	}
	if names != "tx_unknown_mac tx_no_members tx_too_long tx_too_short tx_stalled tx_away tx_stalls tx_stops tx_flooded rx_unlearned rx_forged " {
		t.Errorf("counters %s", names)
	}
}

// The class of a frame is the DSCP of its IP packet.
func TestClassOf(t *testing.T) {
	frame := func(etherType uint16, packet ...byte) []byte {
		return append([]byte{12: byte(etherType >> 8), 13: byte(etherType)}, packet...)
	}
	for _, tt := range []struct {
		frame []byte
		want  fabric.Class
	}{
		{frame(0x0800, 0x45, 0xb8|3), 46}, {frame(0x0800, 0x45, 0x03), 0}, {frame(0x86dd, 0x6b, 0x8f), 46}, {frame(0x86dd, 0x60, 0x3f), 0},
		{frame(0x0806, 0xff, 0xff), 0}, {frame(0x0800, 0x45), 0}, {frame(0x0800), 0},
	} {
		if got := classOf(tt.frame); got != tt.want {
			t.Errorf("% x: class %d, want %d", tt.frame, got, tt.want)
		}
	}
}

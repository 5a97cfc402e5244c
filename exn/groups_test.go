package exn

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/route"
	"exnet/foreign"
	"exnet/multicast"
)

// groupNet is four running interfaces with a directory of groups.
func groupNet(t *testing.T) (net *testNet, nodes []*multicast.Node) {
	local := multicast.NewLocal()
	// The interfaces need the directory before it has their tables.
	look, err := local.Node(99, new(route.Table))
	if err != nil {
		t.Fatal(err)
	}
	net = newNet(t, 4, Config{Groups: look, StallTime: 300 * time.Millisecond, GroupStallTime: 300 * time.Millisecond})
	for _, n := range net.nodes {
		g, err := local.Node(n.id, n.cfg.NIC.Routes())
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, g)
		n.start(t)
	}
	return net, nodes
}

// packet returns a frame for an IP group.
func (n *testNode) packet(t *testing.T, group netip.Addr, size int) []byte {
	mac, err := arp.Multicast(group)
	if err != nil {
		t.Fatal(err)
	}
	f := n.frame(mac, 1, size)
	if group.Is4() {
		f[12], f[13] = 0x08, 0x00
		copy(f[30:], group.AsSlice())
	} else {
		f[12], f[13] = 0x86, 0xdd
		copy(f[38:], group.AsSlice())
	}
	return f
}

// Members get the frames of their groups, all others nothing: also where groups
// share a MAC address.
func TestGroups(t *testing.T) {
	for _, tt := range []struct{ group, other string }{
		{"239.1.2.3", "238.129.2.3"}, // RFC 1112: the same lower 23 bits
		{"ff15::1:2", "ff15:1::1:2"}, // RFC 2464: the same lower 32 bits
	} {
		t.Run(tt.group, func(t *testing.T) {
			net, nodes := groupNet(t)
			a, group, other := net.nodes[0], netip.MustParseAddr(tt.group), netip.MustParseAddr(tt.other)
			send := func(g netip.Addr) {
				t.Helper()
				for _, size := range []int{100, 3000} {
					if err := a.TransmitCopy(exteth.Offload{}, a.packet(t, g, size)); err != nil {
						t.Fatal(err)
					}
				}
			}
			expect := func(want ...int) {
				t.Helper()
				for i, n := range net.nodes {
					eventually(t, "the frames", func() bool { return n.frames.Len() >= want[i] })
					if got := len(n.frames.Take()); got != want[i] {
						t.Errorf("node %d got %d frames, want %d", n.id, got, want[i])
					}
				}
			}
			send(group)
			expect(0, 0, 0, 0)
			if got := a.Stats().TxNoMembers; got != 2 {
				t.Errorf("%d frames for nobody, want 2", got)
			}
			for _, j := range []struct {
				node  int
				group netip.Addr
			}{{1, group}, {2, group}, {3, other}, {0, group}} {
				if _, err := nodes[j.node].Join(j.group); err != nil {
					t.Fatal(err)
				}
			}
			still := net.nodes[3].Stats().Port
			send(group)
			expect(0, 2, 2, 0)
			if s := net.nodes[3].Stats().Port; s != still {
				t.Errorf("counters of the node that has not joined: %+v, before %+v", s, still)
			}
			send(other)
			expect(0, 0, 0, 2)
			if err := nodes[1].Leave(group); err != nil {
				t.Fatal(err)
			}
			send(group)
			expect(0, 0, 2, 0)
			if err := nodes[2].Close(); err != nil { // the sender alone is left
				t.Fatal(err)
			}
			send(group)
			expect(0, 0, 0, 0)
			if got := a.Stats().TxNoMembers; got != 4 {
				t.Errorf("%d frames for nobody, want 4", got)
			}
			for _, everybody := range []string{"224.0.0.251", "ff02::1:ff00:7"} {
				send(netip.MustParseAddr(everybody))
				expect(0, 2, 2, 2)
			}
			for _, f := range [][]byte{
				a.frame(arp.Broadcast(), 1, 100),
				a.frame(arp.MAC{0x01, 0, 0x5e, 1, 2, 3}, 1, 100), // not IP
				a.packet(t, group, 100)[:20],                     // no whole address
			} {
				if err := a.TransmitCopy(exteth.Offload{}, f); err != nil {
					t.Fatal(err)
				}
				expect(0, 1, 1, 1)
			}
			a.checkBuffers(t)
		})
	}
}

// While members come and go, no frame is mixed up and no buffer is lost.
func TestGroupsChange(t *testing.T) {
	net, nodes := groupNet(t)
	a := net.nodes[0]
	groups := []netip.Addr{netip.MustParseAddr("239.0.0.1"), netip.MustParseAddr("239.0.0.2")}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i, n := range nodes[1:] {
		wg.Go(func() {
			for k := i; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				g := groups[k%2]
				if _, err := n.Join(g); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Microsecond)
				if err := n.Leave(g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var frames [2][]byte
	for i, g := range groups {
		frames[i] = a.packet(t, g, 1000+i)
	}
	for i := range 3000 {
		if err := a.TransmitCopy(exteth.Offload{}, frames[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	a.checkBuffers(t)
	for _, n := range net.nodes[1:] {
		for _, f := range n.frames.Take() {
			if string(f.Bytes) != string(frames[len(f.Bytes)-1000]) {
				t.Fatalf("node %d got a frame that is mixed up", n.id)
			}
		}
	}
}

// tapLog keeps what a Tap is shown.
type tapLog struct {
	mu     sync.Mutex
	frames []Direction
	sizes  []int
}

func (l *tapLog) Frame(d Direction, _ exteth.Offload, frame foreign.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = append(l.frames, d)
	l.sizes = append(l.sizes, frame.Len())
}

// A Tap sees what is sent and what is received, and nothing once it is gone.
func TestTap(t *testing.T) {
	net := startNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	var logs [2]tapLog
	a.SetTap(&logs[0])
	b.SetTap(&logs[1])
	sizes := []int{100, 2000, 300}
	send := func() {
		for i, dst := range []arp.MAC{net.mac(2), net.mac(2), arp.Broadcast()} {
			if err := a.TransmitCopy(exteth.Offload{}, a.frame(dst, uint32(i), sizes[i])); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the frames", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.frames.Len() == len(sizes)
		})
		b.frames.Take()
	}
	send()
	a.SetTap(nil)
	b.SetTap(nil)
	send()
	for i, want := range []Direction{TX, RX} {
		l := &logs[i]
		l.mu.Lock()
		if len(l.frames) != len(sizes) || l.frames[0] != want {
			t.Errorf("node %d: %v %v", 1+i, l.frames, l.sizes)
		}
		l.mu.Unlock()
	}
	if RX.String() != "rx" || TX.String() != "tx" || Direction(0).String() != "unknown" {
		t.Error("names of directions")
	}
}

// A packet that a gate holds is sent when that says so, or dropped.
func TestGate(t *testing.T) {
	net := startNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	var later []func()
	a.SetGate(func(packet []byte) func(func()) bool {
		switch len(packet) {
		case 300: // is held
			return func(send func()) bool { later = append(later, send); return true }
		case 400:
			return func(func()) bool { return false }
		}
		return nil
	})
	for i, size := range []int{300, 400, 200} {
		err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), uint32(i), size+exteth.EthernetHeaderLen))
		if dropped := size == 400; errors.Is(err, ErrHeld) != dropped || !dropped && err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	got := func(n int) {
		eventually(t, "the frames", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.frames.Len() == n
		})
	}
	got(1)
	if len(later) != 1 {
		t.Fatalf("%d are held", len(later))
	}
	for i := range 2 * a.cfg.Buffers { // what is held takes no buffer
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 999, 300+exteth.EthernetHeaderLen)); err != nil {
			t.Fatalf("packet %d to be held: %v", i, err)
		}
	}
	later[0]()
	got(2)
	a.SetGate(nil)
	if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 3, 400+exteth.EthernetHeaderLen)); err != nil {
		t.Error(err)
	}
	got(3)
	b.frames.Take()
}

// What finds the members of a frame costs no allocation.
func TestGroupAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	net, nodes := groupNet(t)
	a := net.nodes[0]
	for _, tt := range []struct {
		group  string
		member bool
	}{{"239.1.2.3", true}, {"239.1.2.4", false}, {"ff15::1", true}, {"ff02::1", false}} {
		group := netip.MustParseAddr(tt.group)
		if tt.member {
			if _, err := nodes[1].Join(group); err != nil {
				t.Fatal(err)
			}
		}
		frame := a.packet(t, group, 100)
		if n := testing.AllocsPerRun(100, func() { a.groupOf(frame) }); n != 0 {
			t.Errorf("%v: %v allocations", group, n)
		}
	}
}

// A packet that the Filter does not admit is not received.
func TestFilter(t *testing.T) {
	net := startNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	var asked atomic.Int32
	b.SetFilter(func(from fabric.NodeID, packet []byte) bool {
		if asked.Add(1); from != 1 {
			t.Errorf("from node %d", from)
		}
		return binary.BigEndian.Uint32(packet) != 1
	})
	for i := range 3 {
		if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), uint32(i), 300)); err != nil {
			t.Fatal(err)
		}
	}
	got := func(n int) {
		eventually(t, "the frames", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return asked.Load() == 3 && b.frames.Len() == n
		})
	}
	got(2)
	b.SetFilter(nil)
	if err := a.TransmitCopy(exteth.Offload{}, a.frame(net.mac(2), 1, 300)); err != nil {
		t.Fatal(err)
	}
	got(3)
	b.frames.Take()
}

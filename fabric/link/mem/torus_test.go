package mem_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/topo"
	"exnet/fabric/velo"
	"exnet/internal/longtest"
)

// routed is a fabric with a topology, a NIC on each node and what is needed to send
// from everyone to everyone.
type routed struct {
	*mem.Fabric
	topo   *topo.Topology
	nics   []*nic.NIC
	velo   []*velo.Endpoint
	rma    []*rma.Endpoint
	source []atu.NLA // memory that all may read: its first byte is the node's number
	sink   []*atu.Region
}

// getSize takes two RMA packets.
const getSize = 500

// What a VELO message of 8 bytes, and a GET of getSize, carry over each link:
// network descriptors of 16 bytes, and the payload.
const (
	veloBytes = 16 + 8
	getBytes  = 16 + 2*16 + getSize
)

func torus(tb testing.TB, x, y, z int) *routed {
	tb.Helper()
	t, err := topo.NewTorus(topo.Dims{x, y, z}, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return on(tb, t)
}

func on(tb testing.TB, t *topo.Topology) *routed {
	tb.Helper()
	f, err := mem.NewRouted(t)
	if err != nil {
		tb.Fatal(err)
	}
	r := &routed{Fabric: f, topo: t, nics: attach(tb, f, t.Nodes()...)}
	for i, n := range r.nics {
		r.velo = append(r.velo, fabrictest.OpenVELO(tb, n, vpid, velo.Config{}))
		r.rma = append(r.rma, fabrictest.OpenRMA(tb, n, vpid, rma.Config{Notifications: 64}))
		m := fabrictest.Register(tb, n, vpid, getSize, atu.Read)
		m.Bytes()[0] = byte(i)
		nla, err := m.LendAll()
		if err != nil {
			tb.Fatal(err)
		}
		r.source = append(r.source, nla)
		r.sink = append(r.sink, fabrictest.Register(tb, n, vpid, getSize, atu.Write))
	}
	return r
}

// send sends the position of a to b.
func (r *routed) send(a, b int) error {
	var p [8]byte
	binary.LittleEndian.PutUint64(p[:], uint64(a))
	return r.velo[a].Send(velo.Descriptor{Dst: r.nics[b].ID(), VPID: vpid}, p[:])
}

// get reads b's memory from a.
func (r *routed) get(a, b int) error {
	err := r.rma[a].Get(rma.GetReq{
		Local: r.sink[a].NLA(), Remote: r.source[b], Len: getSize, Node: r.nics[b].ID(), VPID: vpid, Notify: rma.NotifyCompleter,
	})
	if err != nil {
		return err
	}
	n, ok := r.rma[a].Next()
	if !ok || n.Status != fabric.StatusOK || r.sink[a].Bytes()[0] != byte(b) {
		return fmt.Errorf("GET from %d to %d: %+v %v, data of %d", a, b, n, ok, r.sink[a].Bytes()[0])
	}
	return nil
}

// received takes all messages of a node and returns who has sent them.
func (r *routed) received(n int) (from []int) {
	for {
		_, p, ok := r.velo[n].Peek()
		if !ok {
			return from
		}
		from = append(from, int(binary.LittleEndian.Uint64(p)))
		r.velo[n].Advance()
	}
}

// distance is how far two nodes of a torus are apart.
func distance(d topo.Dims, a, b int) (hops int) {
	for _, size := range d {
		n := (a%size - b%size + size) % size
		hops += min(n, size-n)
		a, b = a/size, b/size
	}
	return hops
}

// Everyone reaches everyone, by VELO and by GET, over as few links as possible,
// and every link that is crossed has counted it.
func TestTorusAllPairs(t *testing.T) {
	for _, d := range []topo.Dims{{2, 2, 2}, {4, 4, 4}, {8, 8, 8}} {
		t.Run(fmt.Sprintf("nodes=%d", d.Nodes()), func(t *testing.T) {
			if d.Nodes() > 64 {
				longtest.Nightly(t) // 262,144 pairs
			}
			r := torus(t, d[0], d[1], d[2])
			all, hops := len(r.nics), 0
			for a := range all {
				for b := range all {
					if err := r.send(a, b); err != nil {
						t.Fatalf("send %d to %d: %v", a, b, err)
					}
					if err := r.get(a, b); err != nil {
						t.Fatal(err)
					}
					want := distance(d, a, b)
					if got := r.Routes().Hops(fabric.NodeID(a), fabric.NodeID(b)); got != want {
						t.Fatalf("%d hops from %d to %d, want %d", got, a, b, want)
					}
					hops += want
				}
				for b := range all {
					if from := r.received(b); !slices.Equal(from, []int{a}) {
						t.Fatalf("node %d has messages of %v, sent was one of %d", b, from, a)
					}
				}
			}
			want := topo.Counts{Packets: uint64(hops) * (1 + 1 + 2), Bytes: uint64(hops) * (veloBytes + getBytes)}
			if sum := r.Load().Total(); sum != want {
				t.Errorf("all links: %+v, want %+v", sum, want)
			}
			checkLinks(t, r)
		})
	}
}

// checkLinks checks the load of every single link after all have sent to all, by
// the paths of all pairs.
func checkLinks(t *testing.T, r *routed) {
	t.Helper()
	want := make(map[topo.End]topo.Counts) // by where a packet leaves a node
	count := func(a, b fabric.NodeID, packets, bytes uint64) {
		path, err := r.Routes().Path(a, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range path {
			c := want[e]
			want[e] = topo.Counts{Packets: c.Packets + packets, Bytes: c.Bytes + bytes}
		}
	}
	for _, a := range r.topo.Nodes() {
		for _, b := range r.topo.Nodes() {
			count(a, b, 2, veloBytes+16) // the message and the request
			count(b, a, 2, getBytes-16)  // the response
		}
	}
	for i, l := range r.topo.Links() {
		if got := r.Load().Link(i); got.AB != want[l.A] || got.BA != want[l.B] {
			t.Errorf("link %v: %+v, want %+v and %+v", l, got, want[l.A], want[l.B])
		}
	}
}

// A multicast reaches every member exactly once and nobody else, and crosses as
// many links as its tree has.
func TestTorusMulticast(t *testing.T) {
	for _, d := range []topo.Dims{{2, 2, 2}, {4, 4, 4}, {8, 8, 8}} {
		t.Run(fmt.Sprintf("nodes=%d", d.Nodes()), func(t *testing.T) {
			r := torus(t, d[0], d[1], d[2])
			all := len(r.nics)
			// Group g has every (g+2)-th node, group 63 all.
			for _, n := range r.nics {
				for g := range 6 {
					for m := 0; m < all; m += g + 2 {
						if m != int(n.ID()) {
							if err := n.Routes().Join(fabric.GroupID(g), fabric.NodeID(m)); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
			}
			for _, g := range []fabric.GroupID{0, 1, 2, 3, 4, 5, fabric.GroupBroadcast} {
				for _, source := range []int{0, 1, all / 2, all - 1} {
					checkMulticast(t, r, g, source)
				}
			}
		})
	}
}

func checkMulticast(t *testing.T, r *routed, g fabric.GroupID, source int) {
	t.Helper()
	step := int(g) + 2
	if g == fabric.GroupBroadcast {
		step = 1
	}
	tree, err := r.Routes().Tree(fabric.NodeID(source), r.nics[source].Routes().Members(g))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over the tree of the first
		before := r.Load().Total()
		var p [8]byte
		binary.LittleEndian.PutUint64(p[:], uint64(source))
		if err := r.velo[source].SendMulticast(velo.Descriptor{Group: g, VPID: vpid}, p[:]); err != nil {
			t.Fatal(err)
		}
		for n := range r.nics {
			var want []int
			if n%step == 0 && n != source {
				want = []int{source}
			}
			if got := r.received(n); !slices.Equal(got, want) {
				t.Errorf("group %d from %d: node %d got messages from %v, want %v", g, source, n, got, want)
			}
		}
		got := r.Load().Total()
		if got.Packets-before.Packets != uint64(tree.Len()) || got.Bytes-before.Bytes != uint64(tree.Len()*veloBytes) {
			t.Errorf("group %d from %d: links %+v, before %+v, the tree has %d", g, source, got, before, tree.Len())
		}
	}
	if g == fabric.GroupBroadcast && tree.Len() != len(r.nics)-1 {
		t.Errorf("broadcast over %d links", tree.Len())
	}
}

// A group that changes gets another tree.
func TestMulticastTreeFollowsGroup(t *testing.T) {
	line, err := topo.NewMesh(topo.Dims{4, 1, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := on(t, line)
	tab := r.nics[0].Routes()
	sent := func() uint64 {
		before := r.Load().Total().Packets
		if err := r.velo[0].SendMulticast(velo.Descriptor{Group: 5, VPID: vpid}, []byte{1}); err != nil {
			t.Fatal(err)
		}
		return r.Load().Total().Packets - before
	}
	for i, step := range []struct {
		change func(fabric.GroupID, fabric.NodeID) error
		node   fabric.NodeID
		want   uint64
	}{{tab.Leave, 1, 0}, {tab.Join, 1, 1}, {tab.Join, 3, 3}, {tab.Leave, 1, 3}, {tab.Leave, 3, 0}, {tab.Join, 2, 2}} {
		if err := step.change(5, step.node); err != nil {
			t.Fatal(err)
		}
		if n := sent(); n != step.want {
			t.Errorf("step %d: %d links crossed, want %d", i, n, step.want)
		}
	}
	if err := r.Detach(r.nics[0]); err != nil {
		t.Fatal(err)
	}
	// On another fabric it crosses no link of this one.
	plain := mem.NewFabric()
	attach(t, plain, 1)
	if err := plain.Attach(r.nics[0]); err != nil {
		t.Fatal(err)
	}
	if err := tab.Join(5, 1); err != nil {
		t.Fatal(err)
	}
	if n := sent(); n != 0 {
		t.Errorf("detached: %d links crossed", n)
	}
}

func TestTopologyOfFabric(t *testing.T) {
	r := torus(t, 3, 1, 1)
	if r.Topology() != r.topo || r.Routes().Topology() != r.topo {
		t.Error("another topology")
	}
	if err := r.Attach(fabrictest.NewNIC(t, 3)); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("a node that is not in the topology: %v", err)
	}
	plain := mem.NewFabric()
	if plain.Topology() != nil || plain.Routes() != nil || plain.Load() != nil {
		t.Error("a fabric without topology has one")
	}
	if err := plain.SetLinkDown(0, 1, true); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("cut a link of a fabric without topology: %v", err)
	}
}

package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/wire"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

const vpid = fabric.VPID(1)

// outcome is what came out of random traffic: for each node, a digest of the messages of
// each source in order, and of its memory.
type outcome [3]string

// traffic has every node send messages to every other, and GET from and PUT to it, as the seed
// says.
func traffic(t *testing.T, nics []*nic.NIC, seed uint64) (out outcome) {
	const (
		messages  = 300
		transfers = 40
		piece     = 20000
	)
	type node struct {
		v   *velo.Endpoint
		r   *rma.Endpoint
		mem *atu.Region
		nla atu.NLA // for the others
	}
	nodes := make([]node, len(nics))
	for i, n := range nics {
		// Memory: for each node a source of GETs, then a sink for what each gets and puts.
		nodes[i] = node{
			fabrictest.OpenVELO(t, n, vpid, velo.Config{Credits: 16}), fabrictest.OpenRMA(t, n, vpid, rma.Config{}),
			fabrictest.Register(t, n, vpid, piece*(1+2*len(nics)), atu.Read|atu.Write), 0,
		}
		var err error
		if nodes[i].nla, err = nodes[i].mem.LendAll(); err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		for j := range piece {
			nodes[i].mem.Bytes()[j] = byte(rnd.Uint32())
		}
	}
	var wg sync.WaitGroup
	digests := make([][]byte, len(nics))
	for i := range nics {
		wg.Go(func() { // sends
			rnd := rand.New(rand.NewPCG(seed, 100+uint64(i)))
			for m := range messages {
				to := (i + 1 + rnd.IntN(len(nics)-1)) % len(nics)
				p := make([]byte, 8+rnd.IntN(113))
				binary.LittleEndian.PutUint32(p, uint32(m))
				for {
					err := nodes[i].v.Send(velo.Descriptor{Dst: fabric.NodeID(to), VPID: vpid, Tag: uint8(i)}, p)
					if err == nil {
						break
					}
					if !errors.Is(err, fabric.ErrAgain) {
						t.Error(err)
						return
					}
					time.Sleep(20 * time.Microsecond)
				}
			}
			for to := range nics { // the last one
				if to != i {
					fabrictest.Eventually(t, "credit", func() bool {
						return nodes[i].v.Send(velo.Descriptor{Dst: fabric.NodeID(to), VPID: vpid, Tag: uint8(i)}, []byte("end")) == nil
					})
				}
			}
		})
		wg.Go(func() { // receives
			sums := make([]uint64, len(nics))
			for ends := 0; ends < len(nics)-1; {
				var st velo.Status
				var p []byte
				fabrictest.Eventually(t, "message", func() (ok bool) { st, p, ok = nodes[i].v.Peek(); return ok })
				if t.Failed() {
					return
				}
				h := fnv.New64a()
				fmt.Fprint(h, sums[st.Src], st.Tag, p)
				sums[st.Src] = h.Sum64()
				if string(p) == "end" {
					ends++
				}
				nodes[i].v.Advance()
			}
			digests[i] = fmt.Append(nil, sums)
		})
		wg.Go(func() { // moves memory
			rnd := rand.New(rand.NewPCG(seed, 200+uint64(i)))
			for range transfers {
				to := (i + 1 + rnd.IntN(len(nics)-1)) % len(nics)
				n := 1 + rnd.IntN(piece)
				off := rnd.IntN(piece - n + 1)
				local := nodes[i].mem.NLA() + atu.NLA(piece*(1+to)+off)
				req := rma.GetReq{Local: local, Remote: nodes[to].nla + atu.NLA(off), Len: n, Node: fabric.NodeID(to), VPID: vpid, Notify: rma.NotifyCompleter}
				if err := nodes[i].r.Get(req); err != nil {
					t.Error(err)
					return
				}
				var note rma.Notification
				fabrictest.Eventually(t, "notification", func() (ok bool) { note, ok = nodes[i].r.Next(); return ok })
				if note.Status != fabric.StatusOK {
					t.Errorf("GET: %v", note)
				}
				put := rma.PutReq{
					Local: local, Remote: nodes[to].nla + atu.NLA(piece*(1+len(nics)+i)+off), Len: n,
					Node: fabric.NodeID(to), VPID: vpid, Notify: rma.NotifyRequester,
				}
				if err := nodes[i].r.Put(put); err != nil {
					t.Error(err)
					return
				}
				fabrictest.Eventually(t, "notification", func() (ok bool) { note, ok = nodes[i].r.Next(); return ok })
				if note.Status != fabric.StatusOK {
					t.Errorf("PUT: %v", note)
				}
			}
		})
	}
	wg.Wait()
	for i := range nics {
		h := fnv.New64a()
		h.Write(nodes[i].mem.Bytes())
		out[i] = fmt.Sprintf("%s %x", digests[i], h.Sum64())
	}
	return out
}

// Random traffic over bad links comes to what it comes to over good ones.
func TestBadEqualsGood(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		_, good := newFabric(t, wire.Faults{}, wire.Config{}, 3)
		want := traffic(t, good, seed)
		if mem := traffic(t, fabrictest.New(t, 3), seed); mem != want {
			t.Errorf("seed %d: over good links %v, over mem %v", seed, want, mem)
		}
		f, nics := newFabric(t, wire.Faults{Seed: seed, Drop: 0.02, Corrupt: 0.02, Duplicate: 0.02, Reorder: 0.02,
			Jitter: 20 * time.Microsecond}, wire.Config{DownAfter: 20 * time.Second}, 3)
		if got := traffic(t, nics, seed); got != want {
			t.Errorf("seed %d: %v, over good links %v", seed, got, want)
		}
		var all wire.Stats
		for a := range fabric.NodeID(3) {
			for b := range fabric.NodeID(3) {
				if a == b {
					continue
				}
				s := f.Link(a, b).Stats()
				all.CRCErrors += s.CRCErrors
				all.Retransmitted += s.Retransmitted
				all.Replays += s.Replays
				all.Repeated += s.Repeated
				all.OutOfOrder += s.OutOfOrder
				all.Packets += s.Packets
			}
		}
		if all.CRCErrors == 0 || all.Retransmitted == 0 || all.Replays == 0 || all.Repeated == 0 || all.OutOfOrder == 0 {
			t.Errorf("seed %d: the faults are not in the counters: %+v", seed, all)
		}
		t.Logf("seed %d: %+v", seed, all)
	}
}

// When a link is cut, every operation on it ends with an error, soon, and other
// links do not notice.
func TestCut(t *testing.T) {
	const downAfter = time.Second
	f, nics := newFabric(t, wire.Faults{}, wire.Config{DownAfter: downAfter}, 3)
	var x [3]*velo.Endpoint
	var r [3]*rma.Endpoint
	var mem [3]*atu.Region
	for i, n := range nics {
		x[i] = fabrictest.OpenVELO(t, n, vpid, velo.Config{})
		r[i], mem[i] = fabrictest.OpenRMA(t, n, vpid, rma.Config{}), fabrictest.Register(t, n, vpid, 1<<20, atu.Read|atu.Write)
	}
	dead := make(chan fabric.NodeID, 8)
	x[0].OnCredit(func(n fabric.NodeID) { dead <- n })
	for x[0].Send(velo.Descriptor{Dst: 1, VPID: vpid}, []byte{1}) == nil { // until there is no credit
	}
	before := f.Link(0, 1)
	for _, way := range [][2]fabric.NodeID{{0, 1}, {1, 0}} {
		if err := f.SetFaults(way[0], way[1], wire.Faults{Drop: 1}); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	lent := func(i int) atu.NLA {
		nla, err := fabrictest.Register(t, nics[i], vpid, 1<<20, atu.Read|atu.Write).LendAll()
		if err != nil {
			t.Fatal(err)
		}
		return nla
	}
	for _, err := range []error{
		r[0].Get(rma.GetReq{Local: mem[0].NLA(), Remote: lent(1), Len: 1 << 20, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter}),
		r[1].Put(rma.PutReq{Local: mem[1].NLA(), Remote: lent(0), Len: 1 << 20, Node: 0, VPID: vpid, Notify: rma.NotifyRequester}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		var note rma.Notification
		fabrictest.Eventually(t, "notification", func() (ok bool) { note, ok = r[i].Next(); return ok })
		if note.Status != fabric.StatusPeerDown {
			t.Errorf("node %d: %v", i, note)
		}
	}
	if n := <-dead; n != 1 {
		t.Errorf("OnCredit of node %d", n)
	}
	if d := time.Since(begin); d < downAfter/2 || d > 30*time.Second {
		t.Errorf("it took %v, down after %v", d, downAfter)
	}
	if err := x[0].Send(velo.Descriptor{Dst: 1, VPID: vpid}, []byte{1}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Errorf("send afterwards: %v", err)
	}
	<-before.Done()
	if s := before.Stats(); s.Downs != 1 || s.Timeouts == 0 || !errors.Is(before.Err(), fabric.ErrPeerDown) {
		t.Errorf("%+v, %v", s, before.Err())
	}
	if err := x[0].Send(velo.Descriptor{Dst: 2, VPID: vpid}, []byte{1}); err != nil {
		t.Errorf("send to the third node: %v", err)
	}
	fabrictest.Eventually(t, "message of the third node", func() bool { _, _, ok := x[2].Peek(); return ok })
}

// An idle link that awaits something finds a cut, too: the GET is acknowledged, and then
// the answer does not come.
func TestCutWhileIdle(t *testing.T) {
	f, nics := newFabric(t, wire.Faults{}, wire.Config{DownAfter: time.Second}, 2)
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})
	if err := x.Send(velo.Descriptor{Dst: 1, VPID: vpid}, []byte{1}); err != nil { // nobody reads it
		t.Fatal(err)
	}
	l := f.Link(0, 1)
	fabrictest.Eventually(t, "probe", func() bool { return l.Stats().Probes > 2 })
	if l.Err() != nil {
		t.Fatalf("down while the peer answers: %v", l.Err())
	}
	if err := f.SetFaults(1, 0, wire.Faults{Drop: 1}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Done():
	case <-time.After(3 * time.Minute):
		t.Fatal("the cut was not found")
	}
}

func TestFabricErrors(t *testing.T) {
	f, nics := newFabric(t, wire.Faults{}, wire.Config{}, 2)
	if err := f.Attach(nics[0]); !errors.Is(err, fabric.ErrInUse) {
		t.Error(err)
	}
	if err := f.SetFaults(0, 9, wire.Faults{}); !errors.Is(err, fabric.ErrNoRoute) {
		t.Error(err)
	}
	if err := f.SetFaults(0, 1, wire.Faults{Drop: 2}); !errors.Is(err, wire.ErrFaults) {
		t.Error(err)
	}
	if err := f.Detach(nics[0]); err != nil {
		t.Fatal(err)
	}
	if err := f.Detach(nics[0]); !errors.Is(err, fabric.ErrNoRoute) {
		t.Error(err)
	}
	if f.Link(0, 1) != nil || nics[1].Routes().Port(0) != nil {
		t.Error("node 1 still knows node 0")
	}
	if err := f.Attach(nics[0]); err != nil {
		t.Fatal(err)
	}
	x := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{})
	y := fabrictest.OpenVELO(t, nics[1], vpid, velo.Config{})
	if err := x.Send(velo.Descriptor{Dst: 1, VPID: vpid}, []byte("again")); err != nil {
		t.Fatal(err)
	}
	fabrictest.Eventually(t, "message", func() bool { _, p, ok := y.Peek(); return ok && bytes.Equal(p, []byte("again")) })
	for _, c := range []wire.FabricConfig{{Faults: wire.Faults{Corrupt: -1}}, {Link: wire.Config{Room: 1000}}, {Link: wire.Config{DownAfter: 1}}} {
		if _, err := wire.NewFabric(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestParseFaults(t *testing.T) {
	f := wire.Faults{Seed: 7, Drop: 0.01, Corrupt: 1e-4, Duplicate: 0.5, Reorder: 1, Delay: time.Millisecond, Jitter: 20 * time.Microsecond}
	if back, err := wire.ParseFaults(f.String()); err != nil || back != f {
		t.Errorf("%q: %+v, %v", f, back, err)
	}
	for _, s := range []string{"", "drop", "drop=2", "drop=x", "loss=1", "drop=0.1,drop=0.2", "delay=1", "delay=-1s", "seed=-1", "drop=NaN"} {
		if _, err := wire.ParseFaults(s); !errors.Is(err, wire.ErrFaults) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

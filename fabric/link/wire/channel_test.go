package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// rig is nodes that are joined by links, each with a mailbox and memory of `slots` pieces.
type rig struct {
	*Fabric
	nics []*nic.NIC
	velo []*velo.Endpoint
	rma  []*rma.Endpoint
	mem  []*atu.Region
	nla  []atu.NLA // for the others
}

const (
	piece = 5000
	slots = 128
)

func newRig(t *testing.T, n int, cfg FabricConfig) *rig {
	t.Helper()
	f, err := NewFabric(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Fabric: f}
	for i := range n {
		n := fabrictest.NewNIC(t, fabric.NodeID(i))
		if err := f.Attach(n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Detach(n) }) // the test may have done it
		m := fabrictest.Register(t, n, 1, piece*slots, atu.Read|atu.Write)
		rnd := rand.New(rand.NewPCG(uint64(i), 9))
		for j := range m.Bytes() {
			m.Bytes()[j] = byte(rnd.Uint32())
		}
		nla, err := m.LendAll()
		if err != nil {
			t.Fatal(err)
		}
		r.nics, r.mem, r.nla = append(r.nics, n), append(r.mem, m), append(r.nla, nla)
		r.velo = append(r.velo, fabrictest.OpenVELO(t, n, 1, velo.Config{Credits: 16}))
		r.rma = append(r.rma, fabrictest.OpenRMA(t, n, 1, rma.Config{}))
	}
	return r
}

// get has node a read piece from of node b to its piece to.
func (r *rig) get(t *testing.T, a, b, from, to int) {
	t.Helper()
	if err := r.tryGet(a, b, from, to); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) tryGet(a, b, from, to int) error {
	return r.rma[a].Get(rma.GetReq{
		Local: r.mem[a].NLA() + atu.NLA(piece*to), Remote: r.nla[b] + atu.NLA(piece*from), Len: piece,
		Node: fabric.NodeID(b), VPID: 1, Notify: rma.NotifyCompleter,
	})
}

// put has node a write its piece from to the piece to of node b.
func (r *rig) put(t *testing.T, a, b, from, to int) {
	t.Helper()
	req := rma.PutReq{
		Local: r.mem[a].NLA() + atu.NLA(piece*from), Remote: r.nla[b] + atu.NLA(piece*to), Len: piece,
		Node: fabric.NodeID(b), VPID: 1, Notify: rma.NotifyRequester,
	}
	if err := r.rma[a].Put(req); err != nil {
		t.Fatal(err)
	}
}

// notes returns the states in which n operations of node a end.
func (r *rig) notes(t *testing.T, a, n int) (count map[fabric.Status]int) {
	t.Helper()
	count = make(map[fabric.Status]int)
	for range n {
		var note rma.Notification
		fabrictest.Eventually(t, "notification", func() (ok bool) { note, ok = r.rma[a].Next(); return ok })
		count[note.Status]++
	}
	return count
}

// Both ends flood each other with GETs, PUTs and messages, with one buffer for each channel: all of
// it comes to an end. With one channel for everything a GET keeps the buffer that its answer needs.
func TestFlood(t *testing.T) {
	const ops, messages = 60, 200
	bad := Faults{Seed: 5, Drop: 0.02, Corrupt: 0.02, Duplicate: 0.02, Reorder: 0.02}
	for name, faults := range map[string]Faults{"good": {}, "bad": bad} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, FabricConfig{Link: Config{Room: 1, DownAfter: 2 * time.Minute}, Faults: faults})
			want := [2][]byte{bytes.Clone(r.mem[0].Bytes()), bytes.Clone(r.mem[1].Bytes())}
			for i := range ops { // pieces 0 to 3 are read, those from 4 written by GETs, from 66 by PUTs
				for a := range 2 {
					r.get(t, a, 1-a, i%4, 4+i)
					copy(want[a][(4+i)*piece:], want[1-a][i%4*piece:][:piece])
					r.put(t, a, 1-a, i%4, 66+i)
					copy(want[1-a][(66+i)*piece:], want[a][i%4*piece:][:piece])
				}
			}
			for sent, got := [2]int{}, [2]int{}; got != [2]int{messages, messages}; {
				for a := range 2 {
					if sent[a] < messages && r.velo[a].Send(velo.Descriptor{Dst: fabric.NodeID(1 - a), VPID: 1}, []byte{byte(sent[a])}) == nil {
						sent[a]++
					}
					if _, p, ok := r.velo[a].Peek(); ok {
						if p[0] != byte(got[a]) {
							t.Fatalf("message %d, want %d", p[0], got[a])
						}
						got[a]++
						r.velo[a].Advance()
					}
				}
				if err := r.Link(0, 1).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for a := range 2 {
				if n := r.notes(t, a, 2*ops); n[fabric.StatusOK] != 2*ops {
					t.Errorf("node %d: %v", a, n)
				}
			}
			for a := range 2 {
				if !bytes.Equal(r.mem[a].Bytes(), want[a]) {
					t.Errorf("node %d: wrong data", a)
				}
			}
		})
	}
	t.Run("planted", func(t *testing.T) {
		before := channelOf
		channelOf = [kindEnd]channel{}
		t.Cleanup(func() { channelOf = before }) // once the rig's links have ended
		r := newRig(t, 2, FabricConfig{Link: Config{Room: 1}})
		x, y := r.Link(0, 1), r.Link(1, 0)
		var posted [2]int // the link may end before all are
		for n := range 2 * ops {
			a, i := n%2, n/2
			switch err := r.tryGet(a, 1-a, i%4, 4+i); {
			case err == nil:
				posted[a]++
			case !errors.Is(err, fabric.ErrNoRoute):
				t.Fatal(err)
			}
		}
		for _, l := range []*Link{x, y} {
			select {
			case <-l.Done():
			case <-time.After(3 * time.Minute):
				t.Fatal("no end")
			}
		}
		for a := range 2 {
			if n := r.notes(t, a, posted[a]); n[fabric.StatusOK] == ops {
				t.Errorf("node %d: %v: one channel does not block", a, n)
			}
		}
		if err := errors.Join(x.Err(), y.Err()); !errors.Is(err, errBreach) || !strings.Contains(err.Error(), "no credits") {
			t.Errorf("down because of %v", err)
		}
	})
}

// Reset of one of two peers ends what was under way with it, and only that; then the two nodes meet
// again.
func TestReset(t *testing.T) {
	r := newRig(t, 3, FabricConfig{Link: Config{DownAfter: 10 * time.Minute}})
	want := bytes.Clone(r.mem[2].Bytes())
	for round := range 3 {
		if err := r.SetFaults(1, 0, Faults{Drop: 1}); err != nil { // nothing of node 1 comes any more
			t.Fatal(err)
		}
		l, other := r.Link(0, 1), r.Link(0, 2)
		for i := range 50 {
			r.get(t, 0, 1, i, i)
			r.get(t, 0, 2, i, 64+i)
			r.put(t, 2, 0, i, i)
		}
		if err := r.Reset(1, 0); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(l.Err(), errReset) || r.Link(0, 1) == l || r.Link(0, 2) != other || other.Err() != nil {
			t.Errorf("round %d: %v, other %v", round, l.Err(), other.Err())
		}
		if n := r.notes(t, 0, 100); n[fabric.StatusPeerDown] != 50 || n[fabric.StatusOK] != 50 {
			t.Errorf("round %d: node 0: %v", round, n)
		}
		if n := r.notes(t, 2, 50); n[fabric.StatusOK] != 50 {
			t.Errorf("round %d: node 2: %v", round, n)
		}
		for _, at := range []int{0, 64} {
			if !bytes.Equal(r.mem[0].Bytes()[at*piece:][:50*piece], want[:50*piece]) {
				t.Errorf("round %d: wrong data of node 2", round)
			}
		}
		r.get(t, 0, 1, 7, 120)
		if n := r.notes(t, 0, 1); n[fabric.StatusOK] != 1 || !bytes.Equal(r.mem[0].Bytes()[120*piece:][:piece], r.mem[1].Bytes()[7*piece:][:piece]) {
			t.Errorf("round %d: after the reset: %v", round, n)
		}
		fabrictest.Eventually(t, "credit", func() bool {
			return r.velo[0].Send(velo.Descriptor{Dst: 1, VPID: 1}, []byte{byte(round)}) == nil
		})
		fabrictest.Eventually(t, "message", func() bool {
			_, p, ok := r.velo[1].Peek()
			return ok && p[0] == byte(round)
		})
		r.velo[1].Advance()
	}
	for _, m := range r.mem {
		if !m.Revoke() {
			t.Error("a transfer that has ended keeps memory")
		}
	}
	if err := r.Reset(0, 9); !errors.Is(err, fabric.ErrNoRoute) {
		t.Error(err)
	}
}

// A peer that dies with 32 GETs under way, some of them half answered, and more that wait: all end
// with an error, and nothing is kept.
func TestDeath(t *testing.T) {
	n, l, peer := newVictim(t)
	e := fabrictest.OpenRMA(t, n, 2, rma.Config{})
	m := fabrictest.Register(t, n, 2, piece*slots, atu.Read|atu.Write)
	const gets = 50
	for i := range gets {
		req := rma.GetReq{Local: m.NLA() + atu.NLA(piece*i), Remote: 8, Len: piece, Node: 2, VPID: 1, Notify: rma.NotifyCompleter}
		if err := e.Get(req); err != nil {
			t.Fatal(err)
		}
	}
	asked, b, seq := make(map[uint32]bool), make([]byte, MaxPacket), uint32(0)
	for len(asked) < maxGets {
		k, err := peer.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePacket(b[:k])
		var m message
		if err != nil || len(p.message) == 0 || p.seq != uint32(len(asked)) {
			continue // sent again
		}
		if err := m.parse(p.message); err != nil || m.kind != kindGet {
			t.Fatalf("%+v, %v", m, err)
		}
		for other := range asked {
			if other%maxGets == m.number%maxGets {
				t.Fatalf("tag of %d is that of %d", m.number, other)
			}
		}
		asked[m.number] = true
		d := message{kind: kindData, number: m.number, data: make([]byte, rma.MTU)}
		if err := peer.Send(appendPacket(nil, packet{flags: flagData, seq: seq, ack: uint32(len(asked)), limits: plenty, message: d.append(nil)})); err != nil {
			t.Fatal(err)
		}
		seq++
	}
	l.mu.Lock()
	if used, waiting := l.gets.inUse(), len(l.gets.waiting); used != maxGets || waiting != gets-maxGets {
		t.Errorf("%d GETs under way, %d wait", used, waiting)
	}
	l.mu.Unlock()
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	r := rig{rma: []*rma.Endpoint{e}}
	if n := r.notes(t, 0, gets); n[fabric.StatusPeerDown] != gets {
		t.Errorf("they end in %v", n)
	}
	<-l.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gets.inUse()+len(l.gets.waiting)+l.queued() > 0 {
		t.Errorf("%d GETs, %d waiting, %d messages are left", l.gets.inUse(), len(l.gets.waiting), l.queued())
	}
	if _, ok := e.Next(); ok {
		t.Error("one GET ended twice")
	}
	if !m.Revoke() {
		t.Error("a GET that has ended keeps memory")
	}
}

// A number stands for one operation from take to drop, and then for none.
func FuzzTags(f *testing.F) {
	for _, s := range []string{"", "\x00\x00\x00\x81\x82\x00", strings.Repeat("\x00", 80) + strings.Repeat("\x80", 40) + "\x00\x00"} {
		f.Add([]byte(s), false)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	long := make([]byte, 5000)
	for i := range long {
		long[i] = byte(rnd.Uint32())
	}
	f.Add(long, true)
	f.Fuzz(func(t *testing.T, steps []byte, gets bool) {
		n := maxPuts
		if gets {
			n = maxGets
		}
		if twice := runTags(t, steps, n, func(*tags) {}); twice {
			t.Error("a tag was handed out twice")
		}
	})
}

// The model of FuzzTags finds a tag that is free although it is in use.
func TestTagsPlanted(t *testing.T) {
	if !runTags(t, make([]byte, 3), maxGets, func(a *tags) { a.free |= 1 }) {
		t.Error("the fault is not found")
	}
}

// runTags takes and drops numbers as steps say, and does fault after each step.
func runTags(t *testing.T, steps []byte, n int, fault func(*tags)) (twice bool) {
	t.Helper()
	a := newTags(n)
	model, out, stale := make(map[uint32]*op), []uint32(nil), uint32(0)
	for _, s := range steps {
		if s < 0x80 {
			o := new(op)
			number, ok := a.takeTag(o)
			if ok != (len(out) < n) {
				t.Fatalf("take: %v with %d of %d in use", ok, len(out), n)
			}
			if ok {
				for other := range model {
					twice = twice || other%uint32(n) == number%uint32(n)
				}
				model[number], out = o, append(out, number)
			}
		} else if len(out) > 0 {
			i := int(s) % len(out)
			stale = out[i]
			a.freeTag(stale)
			delete(model, stale)
			out = append(out[:i], out[i+1:]...)
			if _, err := a.operationOf(stale); err == nil {
				t.Fatalf("operation %d is under way after its end", stale)
			}
		}
		fault(&a)
		if twice {
			return true
		}
		for number, o := range model {
			if got, err := a.operationOf(number); got != o || err != nil {
				t.Fatalf("operation %d: %v, %v", number, got, err)
			}
		}
	}
	return false
}

package shm_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// victim is a node with an honest and a hostile peer.
type victim struct {
	nic    *nic.NIC
	velo   *velo.Endpoint
	rma    *rma.Endpoint
	region *atu.Region

	friend *velo.Endpoint
	foe    *shm.Link // the hostile side
	link   *shm.Link // the victim's side of that link
	foeNIC *nic.NIC
}

func newVictim(tb testing.TB) (v victim) {
	tb.Helper()
	v.nic = fabrictest.NewNIC(tb, 0)
	friend := fabrictest.NewNIC(tb, 1)
	v.foeNIC = fabrictest.NewNIC(tb, 2)
	fabrictest.JoinSHM(tb, v.nic, friend)
	v.link, v.foe = fabrictest.JoinSHM(tb, v.nic, v.foeNIC)
	v.velo = fabrictest.OpenVELO(tb, v.nic, vpid, velo.Config{Slots: 16, Credits: 4})
	v.rma = fabrictest.OpenRMA(tb, v.nic, vpid, rma.Config{})
	v.friend = fabrictest.OpenVELO(tb, friend, vpid, velo.Config{})
	fabrictest.OpenVELO(tb, v.foeNIC, vpid, velo.Config{})
	fabrictest.OpenRMA(tb, v.foeNIC, vpid, rma.Config{})
	v.region = fabrictest.Register(tb, v.nic, vpid, 4096, atu.Read|atu.Write)
	if _, err := v.region.LendAll(); err != nil {
		tb.Fatal(err)
	}
	return v
}

// poke has the victim do everything with the hostile peer that it can.
func (v *victim) poke(tb testing.TB) {
	tb.Helper()
	d := velo.Descriptor{Dst: 2, VPID: vpid}
	for range 3 {
		_ = v.velo.Send(d, []byte("hello")) // anything but a crash is right
		_, _ = v.velo.WantCredits(2, vpid, 100)
		_ = v.rma.Get(rma.GetReq{Local: v.region.NLA(), Remote: 1 << 40, Len: 100, Node: 2, VPID: vpid})
		_ = v.rma.Put(rma.PutReq{Local: v.region.NLA(), Remote: 1 << 40, Len: 100, Node: 2, VPID: vpid})
		for range 20 {
			if _, _, ok := v.velo.Peek(); !ok {
				break
			}
			v.velo.Advance()
		}
		v.rma.Next()
		v.velo.EnableInterrupt()
	}
}

// alive fails unless the honest peer is served as ever.
func (v *victim) alive(tb testing.TB) {
	tb.Helper()
	for {
		if _, _, ok := v.velo.Peek(); !ok {
			break
		}
		v.velo.Advance()
	}
	if err := v.friend.Send(toPeer(0), []byte("friend")); err != nil {
		tb.Fatalf("the honest peer: %v", err)
	}
	for end := time.Now().Add(3 * time.Minute); ; {
		st, p, ok := v.velo.Peek()
		if ok {
			friendly := st.Src == 1 && string(p) == "friend"
			v.velo.Advance()
			if friendly {
				return
			}
		}
		if time.Now().After(end) {
			tb.Fatal("the honest peer's message does not arrive")
		}
	}
}

// A peer writes whatever it likes wherever it can. Each five bytes of the input
// are one step: where, what, how much.
func FuzzHostile(f *testing.F) {
	word := func(off int, w uint64) []byte {
		b := []byte{0}
		b = binary.LittleEndian.AppendUint32(b, uint32(off))
		return binary.LittleEndian.AppendUint64(b, w)
	}
	slot := func(n int, kind uint64) []byte {
		return word(shm.RingOff+n*128, 1<<63|kind)
	}
	f.Add(word(shm.HeadOff, 1<<40))
	f.Add(word(shm.EventsOff, 7))
	f.Add(word(shm.SpaceOff, 7))
	f.Add(word(shm.BoxOff+8, 1<<63))
	f.Add(word(shm.AckOff, 1<<63))
	f.Add(word(shm.WantOff, 1))
	for kind := range uint64(9) {
		f.Add(slot(0, kind))
		f.Add(append(slot(0, 2), slot(1, kind|1<<47)...))
		f.Add(append(word(shm.RingOff+8, 0x0001000100010000), append(slot(0, 2), slot(1, kind)...)...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v := newVictim(t)
		seg := v.foe.Segment()
		v.poke(t)
		for len(in) >= 13 {
			off := int(binary.LittleEndian.Uint32(in[1:])) % (len(seg) - 8)
			copy(seg[off:], in[5:13])
			if in[0]&1 != 0 {
				v.poke(t)
			}
			in = in[13:]
		}
		v.poke(t)
		v.alive(t)
	})
}

// The same with noise, for a while, in places that matter.
func TestScribble(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	breaches := 0
	for range rounds {
		v := newVictim(t)
		seg := v.foe.Segment()
		for range 200 {
			switch rng.IntN(4) {
			case 0: // anywhere
				seg[rng.IntN(len(seg))] = byte(rng.Uint32())
			case 1: // a slot that may be read next, with a word that may pass
				off := shm.RingOff + rng.IntN(8)*128
				for i := range 40 {
					seg[off+8+i] = byte(rng.Uint32N(3))
				}
				binary.LittleEndian.PutUint64(seg[off:], uint64(rng.IntN(2))<<63|rng.Uint64N(4)<<47|rng.Uint64N(128)<<40|rng.Uint64N(9))
			case 2: // a control word
				binary.LittleEndian.PutUint64(seg[rng.IntN(24)*8:], rng.Uint64())
			case 3:
				off := shm.BoxOff + rng.IntN(shm.RingOff-shm.BoxOff)&^7
				binary.LittleEndian.PutUint64(seg[off:], rng.Uint64()>>rng.IntN(64))
			}
			if rng.IntN(10) == 0 {
				v.poke(t)
			}
		}
		v.poke(t)
		v.alive(t)
		if errors.Is(v.link.Err(), shm.ErrBreach) {
			breaches++
		}
	}
	t.Logf("%d of %d links were closed for a breach", breaches, rounds)
	if breaches == 0 {
		t.Error("no breach was noticed")
	}
}

// Each thing that a peer can say and that cannot be costs its link, and nothing
// else.
func TestBreaches(t *testing.T) {
	const phase = 1 << 63
	ring := func(seg []byte, n int, word uint64, payload ...uint64) {
		off := shm.RingOff + n*128
		for i, w := range payload {
			binary.LittleEndian.PutUint64(seg[off+8+8*i:], w)
		}
		binary.LittleEndian.PutUint64(seg[off:], word)
	}
	const open = uint64(vpid)<<16 | uint64(vpid)<<32 // flow 0
	for _, tt := range []struct {
		name string
		do   func(seg []byte)
	}{
		{"kind 0", func(s []byte) { ring(s, 0, phase) }},
		{"kind 9", func(s []byte) { ring(s, 0, phase|9) }},
		{"message of an unknown flow", func(s []byte) { ring(s, 0, phase|1|1<<40) }},
		{"flow number", func(s []byte) { ring(s, 0, phase|2, open|0xffff) }},
		{"flow from VPID 300", func(s []byte) { ring(s, 0, phase|2, open|300<<16) }},
		{"flow opened twice", func(s []byte) { ring(s, 1, phase|2, open); ring(s, 0, phase|2, open) }},
		{"message without credit", func(s []byte) {
			for i := range 6 {
				ring(s, 6-i, phase|1|8<<40|uint64(vpid)<<16)
			}
			ring(s, 0, phase|2, open)
		}},
		{"down of an unknown flow", func(s []byte) { ring(s, 0, phase|3, 100) }},
		{"GET with a number too large", func(s []byte) { ring(s, 0, phase|4, 256) }},
		{"PUT with too much data in the message", func(s []byte) { ring(s, 0, phase|5, 4<<48, 65) }},
		{"answer to nothing", func(s []byte) { ring(s, 0, phase|6, 5) }},
		{"answer with status 99", func(s []byte) { ring(s, 0, phase|6, 99<<56) }},
		{"release of nothing", func(s []byte) { ring(s, 0, phase|7, 5) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newVictim(t)
			tt.do(v.foe.Segment())
			fabrictest.Eventually(t, "end of the link", func() bool { // without a word to the foe, which would answer
				v.velo.Peek()
				return v.link.Err() != nil
			})
			if !errors.Is(v.link.Err(), shm.ErrBreach) {
				t.Errorf("%v", v.link.Err())
			}
			<-v.link.Done()
			if err := v.velo.Send(toPeer(2), []byte{1}); !errors.Is(err, fabric.ErrNoRoute) && !errors.Is(err, fabric.ErrClosed) {
				t.Errorf("send: %v", err)
			}
			v.alive(t)
		})
	}
}

// A peer answers a GET with data outside of its arena, and claims a PUT of such.
func TestPlacesOutsideArena(t *testing.T) {
	v := newVictim(t)
	if err := v.rma.Get(rma.GetReq{Local: v.region.NLA(), Remote: 1 << 40, Len: 100, Node: 2, VPID: vpid, Notify: rma.NotifyCompleter}); err != nil {
		t.Fatal(err)
	}
	// The foe's NIC has answered or will; its answer is replaced by ours.
	fabrictest.Eventually(t, "answer", func() bool { _, ok := v.rma.Next(); return ok })
	seg := v.foe.Segment()
	off := shm.RingOff + 128 // the slot after the answer
	binary.LittleEndian.PutUint64(seg[off+8:], uint64(vpid)<<16|uint64(vpid)<<32)
	binary.LittleEndian.PutUint64(seg[off+16:], 100)
	binary.LittleEndian.PutUint64(seg[off+24:], uint64(v.region.NLA()))
	binary.LittleEndian.PutUint64(seg[off+32:], uint64(atu.ArenaSize)-50)
	binary.LittleEndian.PutUint64(seg[off:], 1<<63|5)
	fabrictest.Eventually(t, "refusal", func() bool {
		v.rma.Next()
		// The answer to the PUT that the foe never started ends its own side.
		return v.foe.Err() != nil
	})
	v.alive(t)
}

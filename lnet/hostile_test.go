package lnet

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// TestLNetHostile lets a peer send what it likes, next to an honest one.
func TestLNetHostile(t *testing.T) {
	nics := fabrictest.New(t, 3)
	var nis [2]*NI
	for i := range nis {
		var err error
		if nis[i], err = Open(nics[i], Config{}); err != nil {
			t.Fatal(err)
		}
		defer nis[i].Close()
	}
	box := fabrictest.OpenVELO(t, nics[2], 0, velo.Config{})
	fabrictest.OpenRMA(t, nics[2], 0, rma.Config{})
	p := &pair{nics: nics[:2], nis: nis}
	sink := make([]byte, 4096)
	p.attach(t, Match{From: 0}, MemoryDescriptor{Buffer: sink, Threshold: Unlimited, Options: OpPut | OpGet | ManageRemote})
	p.attach(t, Match{From: 2}, MemoryDescriptor{Buffer: make([]byte, 512), Threshold: Unlimited, Options: OpPut | OpGet | ManageRemote})
	victim := p.bind(t, pattern(4096))
	if err := nis[0].Put(victim, Request{Target: 1, Portal: 7, Ack: true}); err != nil { // its advert waits at node 1
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		h := Header{Dst: NIDOf(1), Src: NIDOf(2), Type: MessageType(rng.IntN(4)), Portal: uint32(6 + rng.IntN(3)),
			Handle: Handle{nis[1].cookie, uint64(rng.IntN(3))}, Offset: uint32(rng.IntN(600))}
		switch h.Type {
		case MessagePut:
			h.PayloadLength = uint32(rng.IntN(600))
		case MessageGet, MessageAck:
			h.Length = uint32(rng.IntN(600))
		}
		b, err := h.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		d := velo.Descriptor{Dst: fabric.NodeID(1), Type: uint8(rng.IntN(6)), Tag: uint8(rng.IntN(3))}
		if n := HeaderLen + int(h.PayloadLength); n <= velo.MaxPayload && i%4 == 0 { // as it should be
			d.Type, d.Tag = typeLast, tagFirst
			_ = box.Send(d, append(b, make([]byte, n-HeaderLen)...))
			continue
		}
		b = appendNLA(b, atu.NLA(rng.Uint64()>>rng.IntN(64)))
		b = append(b, make([]byte, rng.IntN(velo.MaxPayload-len(b)))...)
		switch rng.IntN(3) {
		case 0:
			b = b[:1+rng.IntN(len(b))]
		case 1:
			b[rng.IntN(len(b))] ^= byte(1 << rng.IntN(8))
		case 2:
			b = b[:AdvertLen]
			d.Type = typeAdvert
		}
		_ = box.Send(d, b) // no credit: nobody has polled
		if i%50 == 1 {
			p.run()
			for _, _, ok := box.Peek(); ok; _, _, ok = box.Peek() {
				box.Advance()
			}
		}
	}
	p.run()
	if s := nis[1].Stats(); s.BadMessages == 0 || s.Naks == 0 || s.Unmatched == 0 || s.Failed == 0 {
		t.Errorf("not all kinds of lies: %+v", s)
	}
	if types(p.log[0]) != "SEND ACK " || !bytes.Equal(sink, pattern(4096)) {
		t.Errorf("the honest peer's events: %s", types(p.log[0]))
	}
	p.idle(t)
}

// TestLNetUnreadAnswers floods a node with questions whose answers are never read.
func TestLNetUnreadAnswers(t *testing.T) {
	p := newPair(t, Config{Immediate: MaxImmediate})
	p.attach(t, Match{Any: true}, MemoryDescriptor{Buffer: make([]byte, 8), Threshold: Unlimited, Options: OpPut | ManageRemote})
	d := p.bind(t, make([]byte, 8))
	for range 3000 {
		if err := p.nis[0].Put(d, Request{Target: 1, Portal: 7, Ack: true}); err != nil {
			t.Fatal(err)
		}
		p.nis[1].Poll(8)
	}
	silent := p.nis[1]
	silent.mu.Lock()
	answers := silent.peers[0].answers
	silent.mu.Unlock()
	if dropped := silent.Stats().AnswersDropped; answers > maxAnswers || dropped == 0 {
		t.Errorf("%d answers wait, %d dropped", answers, dropped)
	}
}

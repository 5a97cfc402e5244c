package lnet

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// liar is a peer, node 1, whose messages and operations the test chooses.
type liar struct {
	*pair
	box    *velo.Endpoint
	rma    *rma.Endpoint
	memory *atu.Region
}

func newLiar(t *testing.T) *liar {
	nics := fabrictest.New(t, 3)
	ni, err := Open(nics[0], Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ni.Close() })
	l := &liar{pair: &pair{nics: nics, nis: [2]*NI{ni}}}
	l.join(t, nics[1])
	return l
}

// join makes a node the liar.
func (l *liar) join(t *testing.T, n *nic.NIC) {
	l.box = fabrictest.OpenVELO(t, n, 0, velo.Config{})
	l.rma = fabrictest.OpenRMA(t, n, 0, rma.Config{})
	l.memory = fabrictest.Register(t, n, 0, 4096, atu.Read|atu.Write)
}

// begin starts a Put, or a Get, of n bytes to node 1, and returns its message.
func (l *liar) begin(t *testing.T, get bool, n int, ack bool) (h Header, nla atu.NLA) {
	t.Helper()
	start := l.nis[0].Put
	if get {
		start = l.nis[0].Get
	}
	if err := start(l.bind(t, make([]byte, n)), Request{Target: 1, Ack: ack}); err != nil {
		t.Fatal(err)
	}
	_, b, ok := l.box.Peek()
	if !ok || h.UnmarshalBinary(b) != nil {
		t.Fatal("no message")
	}
	if len(b) == AdvertLen {
		nla = atu.NLA(binary.LittleEndian.Uint64(b[HeaderLen:]))
	}
	l.box.Advance()
	return h, nla
}

// send sends h, and reports how many events follow, and messages that break the protocol or belong
// to nothing.
func (l *liar) send(t *testing.T, mtt uint8, h Header, tail ...byte) (events int, bad, unmatched uint64) {
	t.Helper()
	b, err := h.AppendBinary(nil)
	if err == nil {
		err = l.box.Send(velo.Descriptor{Dst: 0, Type: mtt, Tag: tagFirst}, append(b, tail...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.poll()
}

func (l *liar) poll() (events int, bad, unmatched uint64) {
	before, n := l.nis[0].Stats(), len(l.log[0])
	for l.nis[0].Poll(64) > 0 {
	}
	after := l.nis[0].Stats()
	return len(l.log[0]) - n, after.BadMessages - before.BadMessages, after.Unmatched - before.Unmatched
}

// ack returns the ACK of a PUT, and nak the NAK's rest.
func ack(h Header) Header {
	return Header{Dst: h.Src, Src: h.Dst, Type: MessageAck, Handle: h.Handle, Length: h.PayloadLength}
}

func nak(nla atu.NLA) []byte { return append(appendNLA(nil, nla), reasonNoMatch, 0, 0, 0) }

// TestLNetNotification has a peer move the memory of a message otherwise than by its protocol. The
// address of the last fragment is right each time.
func TestLNetNotification(t *testing.T) {
	l := newLiar(t)
	const n = 1000
	_, nla := l.begin(t, false, n, false)
	get := func(n int) {
		t.Helper()
		r := rma.GetReq{Local: l.memory.NLA(), Remote: nla, Len: n, Node: 0, Notify: rma.NotifyCompleter | rma.NotifyResponder}
		if err := l.rma.Get(r); err != nil {
			t.Fatal(err)
		}
	}
	get(n - 1)
	if events, _, unmatched := l.poll(); events != 0 || unmatched != 1 {
		t.Errorf("a GET of other length: %d events, %d unmatched", events, unmatched)
	}
	get(n)
	if events, _, unmatched := l.poll(); events != 1 || unmatched != 0 || types(l.log[0]) != "SEND " {
		t.Errorf("the GET: events %s", types(l.log[0]))
	}
	_, nla = l.begin(t, true, 8, false)
	if err := l.rma.PutImmediate(rma.PutImmediateReq{Len: 8, Remote: nla, Node: 0, Notify: rma.NotifyRequester | rma.NotifyCompleter}); err != nil {
		t.Fatal(err)
	}
	if events, _, unmatched := l.poll(); events != 0 || unmatched != 1 {
		t.Errorf("an immediate PUT: %d events, %d unmatched", events, unmatched)
	}
	if err := l.rma.Put(rma.PutReq{Local: l.memory.NLA(), Remote: nla, Len: 8, Node: 0, Notify: rma.NotifyRequester | rma.NotifyCompleter}); err != nil {
		t.Fatal(err)
	}
	if events, _, _ := l.poll(); events != 2 || types(l.log[0]) != "SEND SEND REPLY " {
		t.Errorf("the PUT: events %s", types(l.log[0]))
	}
	l.idle(t)
}

// TestLNetSource has a peer write another's NID, and another peer answer.
func TestLNetSource(t *testing.T) {
	l := newLiar(t)
	l.bindPortal(t)
	put := Header{Dst: NIDOf(0), Src: NIDOf(1), Type: MessagePut, Handle: NoHandle, Portal: 7}
	for _, h := range []Header{
		{Dst: NIDOf(0), Src: NIDOf(2), Type: MessagePut, Handle: NoHandle, Portal: 7},
		{Dst: NIDOf(2), Src: NIDOf(1), Type: MessagePut, Handle: NoHandle, Portal: 7},
		{Dst: NIDOf(0), Src: NIDOf(1) | 1<<32, Type: MessagePut, Handle: NoHandle, Portal: 7},
	} {
		if events, bad, _ := l.send(t, typeLast, h); events != 0 || bad != 1 {
			t.Errorf("from %v to %v: %d events, %d bad messages", h.Src, h.Dst, events, bad)
		}
	}
	if events, bad, _ := l.send(t, typeLast, put); events != 1 || bad != 0 {
		t.Errorf("its own: %d events, %d bad messages", events, bad)
	}
	bulk, nla := l.begin(t, false, 1000, false)
	empty, _ := l.begin(t, false, 0, true)
	node1 := l.box
	l.join(t, l.nics[2])
	answer, back := ack(empty), bulk
	answer.Src, back.Dst = NIDOf(2), NIDOf(2)
	if events, bad, unmatched := l.send(t, typeLast, answer); events != 1 || bad != 0 || unmatched != 1 { // the SEND of empty
		t.Errorf("another's ACK: %d events, %d bad, %d unmatched", events, bad, unmatched)
	}
	if events, bad, unmatched := l.send(t, typeNak, back, nak(nla)...); events != 0 || bad != 0 || unmatched != 1 {
		t.Errorf("another's NAK: %d events, %d bad, %d unmatched", events, bad, unmatched)
	}
	l.box = node1
	l.send(t, typeLast, ack(empty))
	if l.send(t, typeNak, bulk, nak(nla)...); types(l.log[0]) != "PUT SEND ACK SEND (error) " {
		t.Errorf("events %s", types(l.log[0]))
	}
	l.idle(t)
}

func (l *liar) bindPortal(t *testing.T) {
	_, err := l.nis[0].Attach(7, Match{Any: true}, MemoryDescriptor{Buffer: make([]byte, 8), Threshold: Unlimited, Options: OpPut, Handler: l.handler(0)})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLNetAnswers has answers that differ in one thing from the right one.
func TestLNetAnswers(t *testing.T) {
	l := newLiar(t)
	h, nla := l.begin(t, false, 1000, true)
	incarnation, object, length, reply := ack(h), ack(h), ack(h), ack(h)
	incarnation.Handle.Interface++
	object.Handle.Object++
	length.Length--
	reply.Type, reply.Length = MessageReply, 0
	for name, a := range map[string]Header{"incarnation": incarnation, "object": object, "length": length, "type": reply} {
		if events, _, unmatched := l.send(t, typeLast, a); events != 0 || unmatched != 1 {
			t.Errorf("ACK of another %s: %d events, %d unmatched", name, events, unmatched)
		}
	}
	incarnation, bits := h, h
	incarnation.Handle.Interface++
	bits.MatchBits++
	for name, a := range map[string]Header{"incarnation": incarnation, "match bits": bits} {
		if events, _, unmatched := l.send(t, typeNak, a, nak(nla)...); events != 0 || unmatched != 1 {
			t.Errorf("NAK of another %s: %d events, %d unmatched", name, events, unmatched)
		}
	}
	l.send(t, typeNak, h, nak(nla)...)
	empty, _ := l.begin(t, false, 0, true)
	reply.Handle = empty.Handle
	if events, _, unmatched := l.send(t, typeLast, reply); events != 1 || unmatched != 1 { // its SEND
		t.Errorf("REPLY to a PUT: %d events, %d unmatched", events, unmatched)
	}
	l.send(t, typeLast, ack(empty))
	for last := l.nis[0].last; l.nics[0].Stats().VELO.NoCredit == 0; last++ { // until one cannot leave
		d := l.bind(t, nil)
		if err := l.nis[0].Put(d, Request{Target: 1, Ack: true}); err != nil {
			t.Fatal(err)
		}
		empty.Handle.Object = last + 1
	}
	sent := l.nis[0].last - empty.Handle.Object
	if _, _, unmatched := l.send(t, typeLast, ack(empty)); sent != 0 || unmatched != 1 {
		t.Errorf("ACK of a PUT that has not left: %d unmatched", unmatched)
	}
	l.nis[0].Expire(time.Now().Add(time.Hour))
	l.poll()
	if types(l.log[0][:3]) != "SEND (error) SEND ACK " || !errors.Is(l.log[0][0].Err, ErrNoMatch) {
		t.Errorf("events %s", types(l.log[0]))
	}
	l.idle(t)
}

// TestLNetOrder has the ACK before the notification, and more adverts than a node serves at a time.
func TestLNetOrder(t *testing.T) {
	l := newLiar(t)
	h, nla := l.begin(t, false, 1000, true)
	l.send(t, typeLast, ack(h))
	r := rma.GetReq{Local: l.memory.NLA(), Remote: nla, Len: 1000, Node: 0, Notify: rma.NotifyCompleter | rma.NotifyResponder}
	if err := l.rma.Get(r); err != nil {
		t.Fatal(err)
	}
	if _, _, unmatched := l.poll(); unmatched != 0 || types(l.log[0]) != "ACK SEND " {
		t.Errorf("%d unmatched, events %s", unmatched, types(l.log[0]))
	}
	l.bindPortal(t)
	l.nis[0].peers[1].transfers = maxTransfers
	advert := Header{Dst: NIDOf(0), Src: NIDOf(1), Type: MessagePut, Handle: NoHandle, Portal: 7, PayloadLength: 8}
	if events, _, _ := l.send(t, typeAdvert, advert, appendNLA(nil, 8)...); events != 0 || l.nis[0].Stats().Naks != 1 {
		t.Errorf("%d events, %+v", events, l.nis[0].Stats())
	}
	l.idle(t)
}

// TestLNetLate has ACKs and NAKs before and after the timeout.
func TestLNetLate(t *testing.T) {
	late := time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name string
		mtt  uint8
		size int
		want string // after the answer
	}{{"ACK", typeLast, 0, "SEND ACK "}, {"NAK", typeNak, 1000, "SEND (error) "}} {
		for _, first := range []bool{false, true} {
			l := newLiar(t)
			h, nla := l.begin(t, false, tt.size, true)
			answer, tail := ack(h), []byte(nil)
			if tt.mtt == typeNak {
				answer, tail = h, nak(nla)
			}
			if first {
				l.nis[0].Expire(late)
			}
			if _, _, unmatched := l.send(t, tt.mtt, answer, tail...); (unmatched == 1) != first {
				t.Errorf("%s, timeout %t: %d unmatched", tt.name, first, unmatched)
			}
			l.nis[0].Expire(late)
			l.poll()
			if last := l.log[0][len(l.log[0])-1]; errors.Is(last.Err, ErrTimeout) != first || !first && types(l.log[0]) != tt.want {
				t.Errorf("%s, timeout %t: events %s, %v", tt.name, first, types(l.log[0]), last.Err)
			}
			if s := l.nis[0].Stats(); s.TimedOut > 1 || s.Failed > 1 {
				t.Errorf("%s, timeout %t: %+v", tt.name, first, s)
			}
			l.idle(t)
		}
	}
}

// TestLNetNakBeforeAck has two nodes whose credits wait for each other's NAK, with an ACK queued at
// each.
func TestLNetNakBeforeAck(t *testing.T) {
	p := newPair(t, Config{PeerCredits: 1})
	for i, ni := range p.nis {
		_, err := ni.Attach(7, Match{Any: true}, MemoryDescriptor{Threshold: Unlimited, Options: OpPut})
		if err != nil {
			t.Fatal(err)
		}
		d, err := ni.Bind(MemoryDescriptor{Buffer: make([]byte, 1000), Threshold: Unlimited, Handler: p.handler(i)})
		if err != nil {
			t.Fatal(err)
		}
		to := p.nics[1-i].ID()
		if err := errors.Join(ni.Put(d, Request{Target: to, Portal: 7, Start: 1000, Ack: true}), ni.Put(d, Request{Target: to, Portal: 8})); err != nil {
			t.Fatal(err)
		}
	}
	p.run()
	for i := range p.nis {
		if got := types(p.log[i]); got != "SEND SEND (error) ACK " {
			t.Errorf("node %d: events %s", i, got)
		}
	}
}

package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// foe is a node that says what it likes.
type foe struct {
	t    *testing.T
	nic  *nic.NIC
	box  *velo.Endpoint
	rma  *rma.Endpoint
	to   fabric.NodeID
	vpid fabric.VPID
	lent atu.NLA // where its batches go, once it has heard of it
	far  uint64  // the victim's session
	born uint64  // its Engine's number
	id   uint32  // of its connection
	key  uint32  // of that
	ring atu.NLA // that it may write
	said uint64  // messages for that
}

func newFoe(t *testing.T, f *mem.Fabric, id, to fabric.NodeID) *foe {
	t.Helper()
	card, err := nic.New(nic.Config{Node: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Attach(card); err != nil {
		t.Fatal(err)
	}
	x := &foe{t: t, nic: card, to: to, born: 1, vpid: FirstVPID + fabric.VPID(serverAddr.Port()%Devices)}
	if x.box, err = card.OpenVELO(x.vpid, velo.Config{Slots: 65536, Credits: 65536}); err == nil {
		x.rma, err = card.OpenRMA(x.vpid, rma.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = card.Close() })
	x.begins(1)
	return x
}

func (x *foe) say(k kind, tag uint8, p []byte) {
	x.t.Helper()
	until(x.t, "credit", func() bool {
		return x.box.Send(velo.Descriptor{Dst: x.to, VPID: x.vpid, Tag: tag, Type: uint8(k)}, p) == nil
	})
}

// begins begins a session.
func (x *foe) begins(own uint64) {
	x.t.Helper()
	x.say(kindStage, tagHello, hello{newest, own, 0, x.born}.append(nil))
	for h := (hello{}); h.far != own; {
		h, _ = parseHello(x.hear(kindStage))
		x.far = h.own
	}
	x.say(kindStage, tagHello, hello{newest, own, x.far, x.born}.append(nil))
}

// stamp is that of the next message for the connection.
func (x *foe) stamp() uint8 {
	x.said++
	return stampOf(x.key, x.said-1)
}

// tell says what is for the connection, as a node does that keeps to the rules so far.
func (x *foe) tell(k kind, p []byte) {
	x.t.Helper()
	x.say(k, x.stamp(), p)
}

// selects selects its connection.
func (x *foe) selects(id uint32) {
	x.t.Helper()
	x.say(kindSelect, 0, selection{id, x.key, x.said, 1000}.append(nil))
}

// late is an RMA_INFO whose data comes by a PUT of n bytes.
func late(n uint32, info []byte) []byte { return append(appendID(nil, n), info[infoOff:]...) }

// hear returns the next message of a kind.
func (x *foe) hear(k kind) (p []byte) {
	x.t.Helper()
	until(x.t, "answer", func() bool {
		st, b, ok := x.box.Peek()
		if ok {
			p = bytes.Clone(b)
			x.box.Advance()
			if kind(st.Type) == kindStage && st.Tag == tagLend {
				x.lent, _ = parseNLA(p)
			}
		}
		return ok && kind(st.Type) == k
	})
	return p
}

// open opens a connection to a program on the victim, which takes it, and says that the client has
// attached.
func (x *foe) open(h *host) (id uint32, nla atu.NLA, server *segment.End) {
	x.t.Helper()
	id, nla, server = x.offer(h)
	x.say(kindStage, tagJoined, appendID(appendID(nil, x.id), x.key))
	return id, nla, server
}

// offer is open, but that nothing is said of the client.
func (x *foe) offer(h *host) (id uint32, nla atu.NLA, server *segment.End) {
	x.t.Helper()
	o := open{id: 1000, nla: 1, size: segment.Config{Slots: 16, Ring: 65536}, offer: 7,
		info: segment.Info{Nonce: segment.NewNonce(), Client: clientAddr, Server: serverAddr}}
	x.say(kindOpen, 0, o.append(nil))
	server = h.answer(x.t)
	a, err := parseAttached(x.hear(kindAttached))
	if err != nil || a.id != o.id {
		x.t.Fatal(a, err)
	}
	x.id, x.key, x.ring = a.far, a.key, a.nla
	return a.far, a.nla, server
}

// victim is a host with a foe on its fabric, and a friend.
func victim(t *testing.T) (h, friend *host, x *foe) {
	t.Helper()
	f := mem.NewFabric()
	var hosts []*host
	for id := range 2 {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(id + 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Attach(card); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, newHost(t, card, nil))
	}
	return hosts[1], hosts[0], newFoe(t, f, 9, 2)
}

var promote = make([]byte, 8)

// info is an RMA_INFO whose data is there.
func info(mode uint8, n uint32, off, advance uint64) []byte {
	b := make([]byte, infoOff+28)
	p := b[infoOff:]
	p[0] = mode
	for i := range 4 {
		p[4+i] = byte(n >> (8 * i))
	}
	for i := range 8 {
		p[8+i], p[16+i] = byte(off>>(8*i)), byte(advance>>(8*i))
	}
	return b
}

// A node that says what cannot be loses the connection of which it says so, and its program
// gets a reset; others go on.
func TestHostile(t *testing.T) {
	put := func(tag segment.Tag, p ...byte) func(*foe) {
		return func(x *foe) { x.tell(kind(tag), append(p, make([]byte, max(0, 1-len(p)))...)) }
	}
	said := func(k kind, p []byte) func(*foe) { return func(x *foe) { x.tell(k, p) } }
	both := func(f ...func(*foe)) func(*foe) {
		return func(x *foe) {
			for _, f := range f {
				f(x)
			}
		}
	}
	promoted := put(segment.TagPromote, promote...)
	for _, c := range []struct {
		what string
		do   func(*foe)
	}{
		{"data before PROMOTE", put(segment.TagVELOLast, 1)},
		{"PROMOTE twice", both(promoted, promoted)},
		{"PROMOTE of 3 bytes", put(segment.TagPromote, 1, 2, 3)},
		{"RMA_INFO beyond the ring", both(promoted, put(segment.TagRMAInfo, info(1, 100, 65500, 100)...))},
		{"RMA_INFO of nothing", both(promoted, put(segment.TagRMAInfo, info(1, 0, 0, 0)...))},
		{"RMA_INFO with too small an advance", both(promoted, put(segment.TagRMAInfo, info(1, 100, 0, 99)...))},
		{"RMA_INFO of a region", both(promoted, put(segment.TagRMAInfo, info(2, 100, 0, 0)...))},
		{"RMA_INFO of a sink", both(promoted, put(segment.TagRMAInfo, info(3, 100, 1, 0)...))},
		{"a short RMA_INFO", both(promoted, said(kind(segment.TagRMAInfo), []byte{1, 2}))},
		{"an RMA_INFO whose data comes beyond the ring", both(promoted, said(kind(segment.TagRMAInfo), late(0xff000000, info(1, 100, 0, 100))))},
		{"an RMA_INFO whose data comes by less", both(promoted, said(kind(segment.TagRMAInfo), late(99, info(1, 100, 0, 100))))},
		{"another stamp", both(promoted, func(x *foe) { x.say(kind(segment.TagVELO), x.stamp()+1, []byte{1}) })},
		{"a message twice", both(promoted, func(x *foe) {
			s := x.stamp()
			x.say(kind(segment.TagVELO), s, []byte{1})
			x.say(kind(segment.TagVELO), s, []byte{1})
		})},
		{"a SELECT with another key", both(promoted, func(x *foe) { x.key++; x.selects(x.id) })},
		{"a SELECT with another number", both(promoted, func(x *foe) { x.said += 256; x.selects(x.id) })},
		{"more than the ring", both(promoted, put(segment.TagRMAInfo, info(1, 60000, 0, 60000)...), put(segment.TagRMAInfo, info(1, 6000, 0, 6000)...))},
		{"something after SHUTDOWN", both(promoted, put(segment.TagShutdown), put(segment.TagVELO, 1))},
		{"something after DEMOTE", both(promoted, put(segment.TagDemote), put(segment.TagShutdown))},
		{"more than the queue", func(x *foe) {
			promoted(x)
			for range 16 {
				put(segment.TagVELO, 1)(x)
			}
		}},
		{"consumed what was not sent", said(kindBack, back{consumed: 1}.append(nil))},
		{"freed what was not sent", said(kindBack, back{freed: 1}.append(nil))},
		{"fallen back behind the end", said(kindMark, appendMark(nil, segment.Mark{Flags: segment.MarkFallenBack, Slot: 1}))},
		{"fallen back in what was not sent", said(kindMark, appendMark(nil, segment.Mark{Flags: segment.MarkFallenBack, Off: 1}))},
		{"a short BACK", said(kindBack, []byte{1})},
		{"a long MARK", said(kindMark, make([]byte, 17))},
		{"a short FENCE", said(kindFence, []byte{1})},
	} {
		t.Run(c.what, func(t *testing.T) {
			h, friend, x := victim(t)
			client := friend.call(t, h, segment.Config{})
			server := h.answer(t)
			until(t, "attached", client.Attached)
			id, _, bad := x.open(h)
			x.selects(id)
			c.do(x)
			until(t, "reset", func() bool { bad.Awake(); return bad.Err() == segment.ErrReset })
			x.hear(kindDrop)
			carries(t, client, server) // the other connection
			if h.engine.Stats().Breaches != 1 {
				t.Errorf("%+v", h.engine.Stats())
			}
		})
	}
}

// A node reaches no connection of another node, and no memory but the ring of its own.
func TestNotYours(t *testing.T) {
	h, friend, x := victim(t)
	client := friend.call(t, h, segment.Config{})
	server := h.answer(t)
	until(t, "attached", client.Attached)
	var victims, keys []uint32
	var rings []atu.NLA
	done := make(chan struct{})
	if err := h.engine.doLater(func() {
		for id, c := range h.engine.conns {
			victims, keys, rings = append(victims, id), append(keys, c.key), append(rings, c.in.NLA(), c.out.NLA())
		}
		close(done)
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	x.open(h)
	for i, id := range victims {
		x.key, x.said = keys[i], 0
		x.selects(id)
		x.tell(kind(segment.TagPromote), promote)
		x.tell(kindMark, appendMark(nil, segment.Mark{Flags: segment.MarkClosed | segment.MarkReset}))
		x.tell(kindBack, back{1, 1}.append(nil))
		x.say(kindDrop, 0, appendID(nil, id))
		x.say(kindBye, 0, appendID(nil, id))
		x.say(kindStage, tagAnswer, appendID(appendID(nil, id), 1))
		x.say(kindAttached, 0, attached{id: id, far: 1}.append(nil))
	}
	region, err := x.nic.ATU().Register(x.vpid, make([]byte, 4096), atu.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	for _, nla := range rings {
		if err := x.rma.Put(rma.PutReq{Local: region.NLA(), Remote: nla, Len: 64, Node: x.to, VPID: x.vpid, Notify: rma.NotifyRequester}); err != nil {
			t.Fatal(err)
		}
		until(t, "refused", func() bool {
			n, ok := x.rma.Next()
			if ok && n.Status == fabric.StatusOK {
				t.Error("written to the ring of another connection")
			}
			return ok
		})
	}
	carries(t, client, server)
}

// carries moves 70,000 bytes from client to server, checked.
func carries(t *testing.T, client, server *segment.End) {
	t.Helper()
	if err := client.Promote(0); err != nil {
		t.Fatal(err)
	}
	if err := send(t, client, pattern(1, 70_000), true); err != nil {
		t.Fatal(err)
	}
	until(t, "promoted", func() bool { _, ok := server.PromotedAt(); return ok })
	if got, err := receive(t, server, 70_000, true); err != nil || !bytes.Equal(got, pattern(1, 70_000)) {
		t.Error(err)
	}
}

// Whatever a node says, the victim survives, and others go on.
func TestNoise(t *testing.T) {
	h, friend, x := victim(t)
	client := friend.call(t, h, segment.Config{})
	server := h.answer(t)
	until(t, "attached", client.Attached)
	id, _, bad := x.open(h)
	r := rand.New(rand.NewPCG(1, 2))
	rounds := 20_000
	if testing.Short() {
		rounds = 2000
	}
	for range rounds {
		if r.IntN(4) == 0 {
			x.selects(id)
		}
		p := make([]byte, 1+r.IntN(velo.MaxPayload))
		if r.IntN(2) == 0 {
			p = p[:min(len(p), []int{1, 4, 8, 16, 28, openLen}[r.IntN(6)])]
		}
		for i := range p {
			if r.IntN(3) == 0 {
				p[i] = byte(r.Uint32())
			}
		}
		k := kind(r.IntN(16))
		if k == kindOpen && len(p) == openLen { // or the victim is busy with segments
			continue
		}
		x.say(k, uint8(r.IntN(3)), p)
		for {
			if _, _, ok := x.box.Peek(); !ok {
				break
			}
			x.box.Advance()
		}
	}
	_ = bad
	carries(t, client, server)
}

// A program that breaks the protocol of its segment loses its connection, at both ends.
func TestHostileProgram(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	control := client.Segment().Exposed()[512:] // SPEC.md, 2.2
	control[144+7] = 1                          // fallback_slot: what nobody has sent
	control[128] |= 4                           // FALLEN_BACK
	_, _ = client.Send([]byte{1})               // so that the node looks
	if err := end(t, server, true); err != segment.ErrReset {
		t.Errorf("the far program: %v", err)
	}
	if s := hosts[0].engine.Stats(); s.Breaches != 1 {
		t.Errorf("%+v", s)
	}
}

// A node that writes to its ring and never says so loses its connections, and no other node does,
// even if that writes at the time when it is too much.
func TestWritesAndSaysNothing(t *testing.T) {
	h, friend, x := victim(t)
	client := friend.call(t, h, segment.Config{})
	server := h.answer(t)
	until(t, "attached", client.Attached)
	_, _, _ = x.open(h)
	done := make(chan struct{})
	if err := h.engine.doLater(func() {
		defer close(done)
		ch := h.engine.nodes[9].channels[x.vpid-FirstVPID]
		base := h.engine.conns[x.id].in.NLA()
		for i := range maxArrived { // as if it had
			ch.arrived[base+atu.NLA(i)] = 1
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	carries(t, client, server) // 70,000 bytes, by PUTs
	if s := h.engine.Stats(); s.Breaches != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	x.write(x.ring+1000, make([]byte, 100))
	until(t, "breach", func() bool { return h.engine.Stats().Breaches == 1 })
	until(t, "reset", func() bool { return h.engine.Stats().Connections == 1 })
}

// A node that lets a connection wait for data, and sends more than it has room for, loses that.
func TestHeldIsBounded(t *testing.T) {
	h, _, x := victim(t)
	id, _, server := x.open(h) // a ring of 65,536 bytes, 16 slots
	x.selects(id)
	x.tell(kind(segment.TagPromote), promote)
	x.tell(kind(segment.TagRMAInfo), late(900, info(1, 900, 64, 960)))
	for i := 0; server.Err() == nil; i++ {
		if i > (65536+4*16*velo.MaxPayload)/velo.MaxPayload {
			t.Fatalf("%d messages held", i)
		}
		x.tell(kind(segment.TagVELO), make([]byte, velo.MaxPayload))
		until(t, "taken", func() bool { return h.took(t, id, uint64(i)+3) })
		server.Awake()
	}
	if s := h.engine.Stats(); s.Breaches != 1 {
		t.Errorf("%+v", s)
	}
}

// After PART a node has nothing more to say for a connection: what it says nevertheless changes
// nothing, whether the victim ends or the node does.
func TestAfterPart(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprintf("the victim ends %v", ends), func(t *testing.T) {
			h, _, x := victim(t)
			h.engine.Speak(9, Versions.Newest)
			id, _, server := x.open(h)
			x.selects(id)
			part := func() {
				x.tell(kindMark, appendPart(nil, segment.Mark{Flags: segment.MarkStands | segment.MarkClosed}))
			}
			if ends {
				gone := make(chan struct{})
				go func() {
					h.engine.GoBack(t.Context())
					close(gone)
				}()
				defer func() { <-gone }()
				for !isPart(x.hear(kindMark)) {
				}
				part()
				x.hear(kindBye)
			} else {
				part()
				for !isPart(x.hear(kindMark)) {
				}
			}
			x.tell(kind(segment.TagPromote), promote)
			x.tell(kindMark, appendMark(nil, segment.Mark{Flags: segment.MarkClosed | segment.MarkReset}))
			x.say(kindBye, 0, appendID(nil, id))
			until(t, "over", func() bool { server.Awake(); return server.Err() != nil })
			if err := server.Err(); err != segment.ErrClosed || h.engine.Stats().Breaches != 0 {
				t.Errorf("the program finds %v; %+v", err, h.engine.Stats())
			}
		})
	}
}

// Two nodes end at once. What a program has sent comes also where its data comes after BYE.
func TestByeBeforeData(t *testing.T) {
	h, _, x := victim(t)
	h.engine.Speak(9, Versions.Newest)
	id, ring, server := x.open(h)
	gone := make(chan struct{})
	go func() {
		h.engine.GoBack(t.Context())
		close(gone)
	}()
	for !isPart(x.hear(kindMark)) {
	}
	data := pattern(1, 20_000)
	x.selects(id)
	x.tell(kind(segment.TagPromote), promote)
	x.tell(kind(segment.TagRMAInfo), late(20_000, info(1, 20_000, 0, 20_000)))
	x.tell(kindMark, appendPart(nil, segment.Mark{Flags: segment.MarkStands | segment.MarkClosed}))
	x.say(kindBye, 0, appendID(nil, id))
	until(t, "held", func() bool { return h.took(t, id, x.said) })
	x.write(ring, data)
	<-gone
	if _, ok := server.PromotedAt(); !ok {
		t.Fatal("PROMOTE has not come")
	}
	if got, err := receive(t, server, len(data), true); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := end(t, server, true); err != segment.ErrClosed {
		t.Errorf("then %v", err)
	}
}

// took reports whether so many messages for a connection have come, or it is over.
func (h *host) took(t *testing.T, id uint32, n uint64) (yes bool) {
	t.Helper()
	done := make(chan struct{})
	if err := h.engine.doLater(func() {
		c := h.engine.conns[id]
		yes = c == nil || c.got >= n
		close(done)
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	return yes
}

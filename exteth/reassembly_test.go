package exteth

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
)

// reassembly is frame-format.md, section 3.1, once more, as plainly as can be:
// what the tests expect of a Port.
type reassembly struct {
	maxFrame int
	open     map[string][]message // by source and kind; messages of the unfinished frame
	frames   []gotFrame
	count    map[string]uint64
}

func newReassembly(maxFrame int) *reassembly {
	return &reassembly{maxFrame: maxFrame, open: make(map[string][]message), count: make(map[string]uint64)}
}

func (r *reassembly) receive(src fabric.NodeID, m message) {
	key := fmt.Sprint(src, m.multicast)
	unfinished := r.open[key]
	delete(r.open, key)
	first, index := m.tag&0x80 != 0, int(m.tag&0x3f)
	switch {
	case first && len(unfinished) > 0:
		r.count["rx_incomplete"]++
		unfinished = nil
	case !first && len(unfinished) == 0:
		r.count["rx_orphan"]++
		return
	}
	if index != len(unfinished)%64 {
		r.count["rx_orphan"]++
		if len(unfinished) > 0 {
			r.count["rx_incomplete"]++
		}
		return
	}
	size := len(m.payload)
	for _, u := range unfinished {
		size += len(u.payload)
	}
	if m.typ == 1 && len(m.payload) != 120 || size > r.maxFrame {
		r.count["rx_bad_size"]++
		return
	}
	unfinished = append(unfinished, m)
	if m.typ == 1 {
		r.open[key] = unfinished
		return
	}
	var frame []byte
	for _, u := range unfinished {
		frame = append(frame, u.payload...)
	}
	if len(frame) < 14 {
		r.count["rx_bad_size"]++
		return
	}
	var off Offload
	if m.tag&0x40 != 0 {
		start, offset, ok := checksumAt(frame[14:])
		if !ok {
			r.count["rx_bad_offload"]++
			return
		}
		off = Offload{Flags: 1, CsumStart: uint16(start), CsumOffset: uint16(offset)}
	}
	if m.multicast {
		r.count["rx_group"]++
	} else {
		r.count["rx_eager"]++
	}
	r.count["rx_bytes"] += uint64(len(frame))
	r.frames = append(r.frames, gotFrame{Src: src, Off: off, Bytes: frame})
}

// any adds a message of any type, and returns how many GETs it begins.
func (r *reassembly) any(src fabric.NodeID, m message) uint64 {
	switch m.typ {
	case 1, 2:
		r.receive(src, m)
	case 3:
		var a Advert
		switch {
		case a.UnmarshalBinary(m.payload) != nil || int(a.Length) > r.maxFrame || m.multicast:
			r.count["rx_bad_advert"]++
		case a.Offload.Check(int(a.Length)-14) != nil:
			r.count["rx_bad_offload"]++
		default:
			return 1
		}
	default:
		r.count["rx_bad_message"]++
	}
	return 0
}

func (r *reassembly) check(tb testing.TB, got []gotFrame) {
	tb.Helper()
	if len(got) != len(r.frames) {
		tb.Fatalf("%d frames, want %d", len(got), len(r.frames))
	}
	for i, w := range r.frames {
		if g := got[i]; g.Src != w.Src || g.Off != w.Off || !bytes.Equal(g.Bytes, w.Bytes) {
			tb.Fatalf("frame %d: of node %d, %+v, %v; want node %d, %+v, %v",
				i, g.Src, g.Off, digest(g.Bytes), w.Src, w.Off, digest(w.Bytes))
		}
	}
}

// Sequences that a peer must not send, or that a loss leaves behind.
func TestReassembly(t *testing.T) {
	full := make([]byte, 120)
	random(full)
	m := func(typ, tag uint8, n int) message { return message{typ: typ, tag: tag, payload: full[:n]} }
	group := func(m message) message { m.multicast = true; return m }
	long := eagerMessages(make([]byte, 1000), false) // MaxFrame is 600
	for _, tt := range []struct {
		name string
		msgs []message
		want map[string]uint64
	}{
		{"whole", []message{m(1, 0x80, 120), m(2, 1, 60)}, map[string]uint64{"rx_eager": 1, "rx_bytes": 180}},
		{"shortest", []message{m(2, 0x80, 14)}, map[string]uint64{"rx_eager": 1, "rx_bytes": 14}},
		{"too short", []message{m(2, 0x80, 13)}, map[string]uint64{"rx_bad_size": 1}},
		{"beginning missed", []message{m(1, 1, 120), m(1, 2, 120), m(2, 3, 9)}, map[string]uint64{"rx_orphan": 3}},
		{"middle missed", []message{m(1, 0x80, 120), m(1, 2, 120), m(2, 3, 9)}, map[string]uint64{"rx_orphan": 2, "rx_incomplete": 1}},
		{"end missed", []message{m(1, 0x80, 120), m(2, 0x80, 20)}, map[string]uint64{"rx_incomplete": 1, "rx_eager": 1, "rx_bytes": 20}},
		{"twice", []message{m(1, 0x80, 120), m(1, 0x80, 120), m(2, 1, 1)}, map[string]uint64{"rx_incomplete": 1, "rx_eager": 1, "rx_bytes": 121}},
		{"first with an index", []message{m(1, 0x81, 120), m(2, 1, 120)}, map[string]uint64{"rx_orphan": 2}},
		{"short in the middle", []message{m(1, 0x80, 119), m(2, 1, 1)}, map[string]uint64{"rx_bad_size": 1, "rx_orphan": 1}},
		{"too long", long, map[string]uint64{"rx_bad_size": 1, "rx_orphan": 3}},
		{"checksum of no packet", []message{m(2, 0xc0, 20)}, map[string]uint64{"rx_bad_offload": 1}},
		{"group between", []message{m(1, 0x80, 120), group(m(2, 0x80, 30)), m(2, 1, 20)}, map[string]uint64{"rx_eager": 1, "rx_group": 1, "rx_bytes": 170}},
		{"group does not continue unicast", []message{m(1, 0x80, 120), group(m(2, 1, 30))}, map[string]uint64{"rx_orphan": 1}},
		{"types 0 and 4 to 15", []message{m(0, 0x80, 50), m(4, 0x80, 50), m(15, 0, 1)}, map[string]uint64{"rx_bad_message": 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			net := newNet(t, 1, Config{MaxFrame: 600})
			raw, node := net.addRaw(), net.nodes[0]
			want := newReassembly(600)
			for _, msg := range tt.msgs {
				raw.send(node.id, msg)
				if msg.typ == 1 || msg.typ == 2 {
					want.receive(raw.id, msg)
				}
			}
			net.settle()
			want.check(t, node.frames.Take())
			checkStats(t, node.Stats(), tt.want)
		})
	}
}

// Messages of several sources lie mixed in the mailbox.
func TestReassemblyMixed(t *testing.T) {
	net := newNet(t, 1, Config{})
	node := net.nodes[0]
	rng := rand.New(rand.NewPCG(1, 1))
	want := make(map[fabric.NodeID][][]byte)
	var sources []*rawNode
	for range 4 {
		sources = append(sources, net.addRaw())
	}
	queues := make([][]message, len(sources))
	for i, s := range sources {
		for range 50 {
			frame := make([]byte, 14+rng.IntN(700))
			random(frame)
			want[s.id] = append(want[s.id], frame)
			queues[i] = append(queues[i], eagerMessages(frame, false)...)
		}
	}
	for {
		i := rng.IntN(len(queues))
		if len(queues[i]) == 0 {
			if i = longest(queues); len(queues[i]) == 0 {
				break
			}
		}
		sources[i].send(node.id, queues[i][0])
		queues[i] = queues[i][1:]
		if rng.IntN(10) == 0 {
			net.settle()
		}
	}
	net.settle()
	got := make(map[fabric.NodeID][]gotFrame)
	for _, g := range node.frames.Take() {
		got[g.Src] = append(got[g.Src], g)
	}
	for _, s := range sources {
		checkFrames(t, got[s.id], s.id, want[s.id]...)
	}
}

func longest(queues [][]message) (at int) {
	for i := range queues {
		if len(queues[i]) > len(queues[at]) {
			at = i
		}
	}
	return at
}

// A process with another VPID on a peer's node cannot add to the frames of the
// peer (section 1).
func TestOtherVPID(t *testing.T) {
	net := newNet(t, 1, Config{})
	raw, node := net.addRaw(), net.nodes[0]
	other, _ := raw.open(7)
	frame := make([]byte, 200)
	random(frame)
	msgs := eagerMessages(frame, false)
	raw.send(node.id, msgs[0])
	for _, m := range []message{msgs[0], msgs[1], rawAdvert(0, 100, Offload{})} {
		if err := other.Send(m.descriptor(node.id), m.payload); err != nil {
			t.Fatal(err)
		}
	}
	raw.send(node.id, msgs[1])
	net.settle()
	checkFrames(t, node.frames.Take(), raw.id, frame)
	checkStats(t, node.Stats(), map[string]uint64{"rx_eager": 1, "rx_bytes": 200, "rx_bad_message": 3})
}

// FuzzMessages lets two nodes send anything to a Port: it must not panic, and
// account for every message. Every 6 bytes of the input are a message: {source,
// multicast, VPID}, type, tag, length, and two bytes for its contents.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{0, 1, 0x80, 120, 1, 2, 0, 2, 1, 50, 3, 4})
	f.Add([]byte{0, 2, 0xc0, 120, 0x45, 6, 1, 2, 0x80, 14, 3, 4, 2, 2, 0x80, 13, 0, 0})
	f.Add([]byte{0, 3, 0, 24, 1, 1, 0, 3, 0, 24, 2, 40, 1, 3, 0, 24, 3, 0, 1, 3, 0, 23, 0, 0, 3, 3, 0, 24, 1, 1})
	f.Add([]byte{0, 0, 0, 1, 0, 0, 4, 2, 0x80, 20, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		const maxFrame = 1000
		net := newNet(t, 1, Config{MaxFrame: maxFrame, Buffers: 1})
		node := net.nodes[0]
		sources := []*rawNode{net.addRaw(), net.addRaw()}
		other, _ := sources[0].open(1)
		mem := make([]byte, 4096)
		_, loan := sources[0].region(mem, node.id)
		want := newReassembly(maxFrame)
		sent, gets := uint64(0), uint64(0)
		for ; len(in) >= 6 && sent < 500; in = in[6:] {
			src := sources[in[0]&1]
			m := message{multicast: in[0]&2 != 0, typ: in[1] & 15, tag: in[2], payload: make([]byte, 1+in[3]%120)}
			for i := range m.payload {
				m.payload[i] = in[4+i&1]
			}
			if len(m.payload) > 34 {
				plainUDP(m.payload[14:])
				m.payload[14] = in[4]
			}
			if m.typ == TypeAdvert && in[4]&3 != 0 {
				n := len(m.payload)
				m.payload = rawAdvert(loan+atu.NLA(in[4]>>4)<<8, uint32(in[5])*8, Offload{Flags: in[4] >> 2 & 1, CsumStart: uint16(in[5]) * 7}).payload
				m.payload = m.payload[:min(n, len(m.payload))]
			}
			sent++
			if in[0]&4 != 0 {
				if err := other.Send(m.descriptor(node.id), m.payload); err != nil {
					t.Fatal(err)
				}
				want.count["rx_bad_message"]++
			} else {
				src.send(node.id, m)
				gets += want.any(src.id, m)
			}
			if sent%50 == 0 {
				net.settle()
			}
			for _, s := range sources { // the group reaches them too
				s.receive()
			}
		}
		net.settle()
		s := node.Stats()
		if s.RxRendezvous+s.RxGetFailed != gets {
			t.Errorf("%d frames by GET, %d failed; %d were advertised", s.RxRendezvous, s.RxGetFailed, gets)
		}
		eager := 0
		for _, g := range node.frames.Take() {
			if eager < len(want.frames) && g.Src == want.frames[eager].Src && bytes.Equal(g.Bytes, want.frames[eager].Bytes) {
				eager++
			} else if !bytes.Equal(g.Bytes, make([]byte, len(g.Bytes))) {
				t.Errorf("frame %v of node %d is of nobody", digest(g.Bytes), g.Src)
			}
		}
		if eager != len(want.frames) {
			t.Errorf("%d eager frames, want %d", eager, len(want.frames))
		}
		want.count["rx_rendezvous"], want.count["rx_get_failed"] = s.RxRendezvous, s.RxGetFailed
		want.count["rx_no_transfer"], want.count["rx_bytes"] = s.RxNoTransfer, s.RxBytes
		checkStats(t, s, want.count)
		if got := node.Port.nic.Stats().VELO.Received; got != sent {
			t.Errorf("%d of %d messages were read", got, sent)
		}
		net.checkIdle()
	})
}

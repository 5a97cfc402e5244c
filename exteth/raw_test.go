package exteth

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// rawNode is a node without a Port, which sends what it likes: a hostile peer,
// or an observer of what is on the wire.
type rawNode struct {
	tb   testing.TB
	id   fabric.NodeID
	nic  *nic.NIC
	velo *velo.Endpoint
	rma  *rma.Endpoint
}

// message is a VELO message.
type message struct {
	typ, tag  uint8
	multicast bool
	payload   []byte
}

func (m message) String() string { return fmt.Sprintf("%d/%02x/%d", m.typ, m.tag, len(m.payload)) }

// addRaw adds a node without a Port.
func (net *testNet) addRaw() *rawNode {
	net.tb.Helper()
	net.raws++
	r := &rawNode{tb: net.tb, id: fabric.NodeID(100 + net.raws)}
	r.nic = fabrictest.NewNIC(net.tb, r.id)
	if err := net.fabric.Attach(r.nic); err != nil {
		net.tb.Fatal(err)
	}
	r.velo, r.rma = r.open(0)
	return r
}

// open opens another VPID.
func (r *rawNode) open(v fabric.VPID) (*velo.Endpoint, *rma.Endpoint) {
	r.tb.Helper()
	ve, err := r.nic.OpenVELO(v, velo.Config{})
	if err != nil {
		r.tb.Fatal(err)
	}
	re, err := r.nic.OpenRMA(v, rma.Config{})
	if err != nil {
		r.tb.Fatal(err)
	}
	return ve, re
}

// send sends a message to a Port, or to the broadcast group.
func (r *rawNode) send(to fabric.NodeID, m message) {
	r.tb.Helper()
	if err := r.velo.Send(m.descriptor(to), m.payload); err != nil {
		r.tb.Fatal(err)
	}
}

func (m message) descriptor(to fabric.NodeID) velo.Descriptor {
	return velo.Descriptor{Dst: to, Group: fabric.GroupBroadcast, Multicast: m.multicast, Type: m.typ, Tag: m.tag}
}

// receive takes all messages from the mailbox.
func (r *rawNode) receive() (all []message) {
	for {
		st, p, ok := r.velo.Peek()
		if !ok {
			return all
		}
		all = append(all, message{st.Type, st.Tag, st.Multicast, bytes.Clone(p)})
		r.velo.Advance()
	}
}

// region registers memory and lends it to a node.
func (r *rawNode) region(mem []byte, to fabric.NodeID) (*atu.Region, atu.NLA) {
	r.tb.Helper()
	reg, err := r.nic.ATU().Register(0, mem, atu.Read)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { reg.Close() })
	nla, err := reg.Lend(to)
	if err != nil {
		r.tb.Fatal(err)
	}
	return reg, nla
}

// get fetches n bytes from a node, as the receiver of an advert does, and
// returns them.
func (r *rawNode) get(from fabric.NodeID, nla atu.NLA, n int) ([]byte, fabric.Status) {
	r.tb.Helper()
	mem := make([]byte, n)
	reg, err := r.nic.ATU().Register(0, mem, atu.Write)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer reg.Close()
	err = r.rma.Get(rma.GetReq{
		Local: reg.NLA(), Remote: nla, Len: n, Node: from,
		Notify: rma.NotifyCompleter | rma.NotifyResponder,
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	done, ok := r.rma.Next()
	if !ok {
		r.tb.Fatal("no notification")
	}
	return mem, done.Status
}

// rawAdvert encodes an advert without any check.
func rawAdvert(nla atu.NLA, length uint32, off Offload) message {
	b := binary.BigEndian.AppendUint64(nil, uint64(nla))
	b = binary.BigEndian.AppendUint32(b, length)
	return message{typ: TypeAdvert, payload: append(off.AppendWire(b), 0, 0)}
}

// eagerMessages cuts a frame as frame-format.md, section 3, says.
func eagerMessages(frame []byte, checksum bool) (all []message) {
	for i := 0; len(frame) > 0; i++ {
		n := min(120, len(frame))
		m := message{typ: 1, tag: uint8(i % 64), payload: frame[:n]}
		if i == 0 {
			m.tag |= 0x80
		}
		if checksum {
			m.tag |= 0x40
		}
		if frame = frame[n:]; len(frame) == 0 {
			m.typ = 2
		}
		all = append(all, m)
	}
	return all
}

// plainUDP makes b begin with the header of an IPv4 packet with UDP in it.
func plainUDP(b []byte) {
	if len(b) < 28 {
		return
	}
	clear(b[:28])
	b[0], b[8], b[9] = 0x45, 64, protoUDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
}

package broker

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"

	"exnet/directsockets/broker/wire"
)

func peerMessages() []peerMessage {
	return []peerMessage{
		{Type: peerNode, Node: 0x0102, Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fe80::1")}},
		{Type: peerNode},
		{Type: peerPort, Bound: bound{addr: netip.IPv4Unspecified(), port: 80}, Count: 3},
		{Type: peerPort, Bound: bound{addr: netip.IPv6Unspecified(), port: 80}, Count: 0},
		{Type: peerPort, Bound: bound{addr: netip.IPv6Unspecified(), port: 65535, v6only: true}, Count: 1},
		{Type: peerPort, Bound: bound{addr: netip.MustParseAddr("10.2.0.1"), port: 1}, Count: 1},
		{Type: peerPort, Bound: bound{addr: netip.MustParseAddr("fd00::1"), port: 1}, Count: 1},
		{Type: peerHand, ID: 5, Nonce: wire.Nonce{1, 2}, Client: ap("10.2.0.1:5"), Server: ap("10.2.0.2:6")},
		{Type: peerHand, ID: 5, Client: ap("[fd00::1]:5"), Server: ap("[fd00::2]:6")},
		{Type: peerResult, ID: 6},
		{Type: peerResult, ID: 6, Reason: wire.Expired},
		{Type: peerRetract, ID: 7},
		{Type: peerFound, ID: 8},
		{Type: peerStands, ID: 9},
	}
}

func same(a, b peerMessage) bool {
	aa, bb := a.Addrs, b.Addrs
	a.Addrs, b.Addrs = nil, nil
	return slices.Equal(aa, bb) && a.Type == b.Type && a.ID == b.ID && a.Node == b.Node && a.Bound == b.Bound &&
		a.Count == b.Count && a.Nonce == b.Nonce && a.Client == b.Client && a.Server == b.Server && a.Reason == b.Reason
}

func TestPeerMessages(t *testing.T) {
	for _, m := range peerMessages() {
		b, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got peerMessage
		if err := got.UnmarshalBinary(b); err != nil || !same(got, m) {
			t.Errorf("%+v becomes %+v, %v", m, got, err)
		}
		for n := range b {
			if err := got.UnmarshalBinary(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v cut to %d bytes: %v", m.Type, n, err)
			}
		}
		if err := got.UnmarshalBinary(append(b, 0)); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("%v with a byte more: %v", m.Type, err)
		}
		b[peerVersionOff] = peerVersions.Newest + 1
		if err := got.UnmarshalBinary(b); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("%v of another version: %v", m.Type, err)
		}
	}
	if _, err := (peerMessage{Type: peerNode, Addrs: make([]netip.Addr, maxAddrs+1)}).AppendBinary(nil); err == nil {
		t.Error("too many addresses fit")
	}
}

func FuzzPeerMessage(f *testing.F) {
	for _, m := range peerMessages() {
		b, _ := m.AppendBinary(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again peerMessage
		if m.UnmarshalBinary(b) != nil {
			return
		}
		out, err := m.AppendBinary(nil)
		if err != nil || len(out) != len(b) {
			t.Fatalf("%+v becomes %d bytes of %d, %v", m, len(out), len(b), err)
		}
		if err := again.UnmarshalBinary(out); err != nil || !same(again, m) {
			t.Fatalf("%+v becomes %+v, %v", m, again, err)
		}
	})
}

package exteth

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func goldenOffload() Offload {
	return Offload{Flags: 1, GSOType: 0x81, HdrLen: 0x1112, GSOSize: 0x2122, CsumStart: 0x3132, CsumOffset: 0x4142}
}

func TestOffloadGolden(t *testing.T) {
	host := make([]byte, 0, OffloadLen)
	host = append(host, 1, 0x81)
	for _, v := range []uint16{0x1112, 0x2122, 0x3132, 0x4142} {
		host = binary.NativeEndian.AppendUint16(host, v)
	}
	for _, tt := range []struct {
		name   string
		append func(Offload, []byte) []byte
		parse  func(*Offload, []byte) error
		want   string
	}{
		{"wire", Offload.AppendWire, (*Offload).ParseWire, "01" + "81" + "1112" + "2122" + "3132" + "4142"},
		{"host", Offload.AppendHost, (*Offload).ParseHost, hex.EncodeToString(host)},
	} {
		b := tt.append(goldenOffload(), nil)
		if got := hex.EncodeToString(b); got != tt.want {
			t.Errorf("%s: encoded %s, want %s", tt.name, got, tt.want)
		}
		var o Offload
		if err := tt.parse(&o, b); err != nil || o != goldenOffload() {
			t.Errorf("%s: decoded %+v, %v", tt.name, o, err)
		}
		for n := range OffloadLen {
			if err := tt.parse(&o, b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) || o != goldenOffload() {
				t.Errorf("%s: %d bytes: %v, %+v", tt.name, n, err, o)
			}
		}
	}
}

func FuzzOffload(f *testing.F) {
	f.Add(goldenOffload().AppendWire(nil), 100)
	f.Add(make([]byte, OffloadLen), 0)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		for _, c := range []struct {
			append func(Offload, []byte) []byte
			parse  func(*Offload, []byte) error
		}{
			{Offload.AppendWire, (*Offload).ParseWire},
			{Offload.AppendHost, (*Offload).ParseHost},
		} {
			var o, again Offload
			if c.parse(&o, in) != nil {
				return
			}
			out := c.append(o, nil)
			if !bytes.Equal(out, in[:OffloadLen]) {
				t.Fatalf("%x became %x", in, out)
			}
			if err := c.parse(&again, out); err != nil || again != o {
				t.Fatalf("%+v became %+v, %v", o, again, err)
			}
			packet := make([]byte, n&0xffff)
			if o.Check(len(packet)) != nil {
				continue
			}
			// What passed Check can be completed, and is complete then.
			done, err := o.Complete(packet)
			if err != nil || done.Flags&OffloadNeedsChecksum != 0 || done.Check(len(packet)) != nil && o.GSOType == GSONone {
				t.Fatalf("%+v of %d bytes completed to %+v, %v", o, len(packet), done, err)
			}
		}
	})
}

func TestOffloadCheck(t *testing.T) {
	csum := func(start, offset uint16) Offload {
		return Offload{Flags: OffloadNeedsChecksum, CsumStart: start, CsumOffset: offset}
	}
	gso := func(typ uint8, size, hdr uint16) Offload {
		return Offload{Flags: OffloadNeedsChecksum, GSOType: typ, GSOSize: size, HdrLen: hdr, CsumStart: 20, CsumOffset: 16}
	}
	noFlag := gso(GSOTCPv4, 1448, 40)
	noFlag.Flags = OffloadDataValid
	for _, tt := range []struct {
		name string
		off  Offload
		n    int
		ok   bool
	}{
		{"nothing", Offload{}, 0, true},
		{"verified", Offload{Flags: OffloadDataValid}, 0, true},
		{"unknown flags", Offload{Flags: 0xfc}, 0, true},
		{"checksum at the end", csum(20, 16), 38, true},
		{"checksum half out", csum(20, 16), 37, false},
		{"checksum far out", csum(0xffff, 0xffff), 65535, false},
		{"checksum of nothing", csum(0, 0), 1, false},
		{"offset without flag", Offload{CsumStart: 0xffff}, 0, true},
		{"TCP over IPv4", gso(GSOTCPv4, 1448, 40), 60, true},
		{"with ECN", gso(GSOTCPv4|GSOECN, 1448, 40), 60, true},
		{"TCP over IPv6", gso(GSOTCPv6, 1, 60), 60, true},
		{"IPv6 with ECN", gso(GSOTCPv6|GSOECN, 1, 60), 60, true},
		{"UDP", gso(GSOUDPL4, 1400, 28), 60, true},
		{"UDP with ECN", gso(GSOUDPL4|GSOECN, 1400, 28), 60, false},
		{"ECN alone", gso(GSONone|GSOECN, 1400, 28), 60, false},
		{"UFO", gso(3, 1400, 28), 60, false},
		{"type 2", gso(2, 1400, 28), 60, false},
		{"type 0x7f", gso(0x7f, 1400, 28), 60, false},
		{"no size", gso(GSOTCPv4, 0, 40), 60, false},
		{"header beyond the packet", gso(GSOTCPv4, 1448, 61), 60, false},
		{"no checksum flag", noFlag, 60, false},
	} {
		err := tt.off.Check(tt.n)
		if (err == nil) != tt.ok || !tt.ok && !errors.Is(err, ErrOffload) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// packet4 and packet6 make packets of n bytes with a zero payload.
func packet4(n int, proto byte, ihl byte, fragment uint16) []byte {
	p := make([]byte, n)
	p[0], p[ipv4ProtoOff] = 0x40|ihl, proto
	binary.BigEndian.PutUint16(p[ipv4FragOff:], fragment)
	return p
}

func packet6(n int, next byte) []byte {
	p := make([]byte, n)
	p[0], p[ipv6NextOff] = 0x60, next
	return p
}

// The packets of frame-format.md, section 4.2, and their neighbours.
func TestChecksumAt(t *testing.T) {
	for _, tt := range []struct {
		name          string
		packet        []byte
		start, offset int // 0: none
	}{
		{"nothing", nil, 0, 0},
		{"19 bytes", packet4(20, protoTCP, 5, 0)[:19], 0, 0},
		{"TCP over IPv4", packet4(40, protoTCP, 5, 0), 20, 16},
		{"field at the end", packet4(38, protoTCP, 5, 0), 20, 16},
		{"field cut", packet4(37, protoTCP, 5, 0), 0, 0},
		{"UDP over IPv4", packet4(28, protoUDP, 5, 0), 20, 6},
		{"UDP cut", packet4(27, protoUDP, 5, 0), 0, 0},
		{"four bytes of options", packet4(44, protoTCP, 6, 0), 24, 16},
		{"forty bytes of options", packet4(100, protoUDP, 15, 0), 60, 6},
		{"options beyond the packet", packet4(60, protoTCP, 15, 0), 0, 0},
		{"header length 4", packet4(100, protoTCP, 4, 0), 0, 0},
		{"header length 0", packet4(100, protoTCP, 0, 0), 0, 0},
		{"don't fragment", packet4(40, protoTCP, 5, 0x4000), 20, 16},
		{"reserved flag", packet4(40, protoTCP, 5, 0x8000), 20, 16},
		{"first fragment", packet4(40, protoTCP, 5, 0x2000), 0, 0},
		{"later fragment", packet4(40, protoTCP, 5, 0x2001), 0, 0},
		{"last fragment", packet4(40, protoTCP, 5, 0x1fff), 0, 0},
		{"ICMP", packet4(40, 1, 5, 0), 0, 0},
		{"TCP over IPv6", packet6(60, protoTCP), 40, 16},
		{"UDP over IPv6", packet6(48, protoUDP), 40, 6},
		{"IPv6 cut in the header", packet6(39, protoTCP), 0, 0},
		{"IPv6 field cut", packet6(57, protoTCP), 0, 0},
		{"hop-by-hop options", packet6(80, 0), 0, 0},
		{"routing header", packet6(80, 43), 0, 0},
		{"fragment header", packet6(80, 44), 0, 0},
		{"destination options", packet6(80, 60), 0, 0},
		{"ICMPv6", packet6(80, 58), 0, 0},
		{"version 5", append([]byte{0x55}, make([]byte, 60)...), 0, 0},
		{"version 0", make([]byte, 60), 0, 0},
	} {
		start, offset, ok := checksumAt(tt.packet)
		if want := tt.start != 0; ok != want || ok && (start != tt.start || offset != tt.offset) {
			t.Errorf("%s: %d+%d, %v; want %d+%d", tt.name, start, offset, ok, tt.start, tt.offset)
		}
	}
}

func TestEagerForm(t *testing.T) {
	tcp := packet4(60, protoTCP, 5, 0)
	csum := Offload{Flags: OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}
	elsewhere, field, gso := csum, csum, csum
	elsewhere.CsumStart = 24
	field.CsumOffset = 6
	gso.GSOType, gso.GSOSize = GSOTCPv4, 8
	for _, tt := range []struct {
		name            string
		off             Offload
		packet          []byte
		hasChecksum, ok bool
	}{
		{"nothing left undone", Offload{}, tcp, false, true},
		{"verified", Offload{Flags: OffloadDataValid}, tcp, false, true},
		{"nothing left undone, no IP packet", Offload{}, []byte{1, 2}, false, true},
		{"checksum", csum, tcp, true, true},
		{"checksum from elsewhere", elsewhere, tcp, true, false},
		{"checksum in another field", field, tcp, true, false},
		{"checksum of a fragment", csum, packet4(60, protoTCP, 5, 0x2000), true, false},
		{"checksum behind options", csum, packet4(60, protoTCP, 6, 0), true, false},
		{"checksum of ICMP", csum, packet4(60, 1, 5, 0), true, false},
		{"segments", gso, tcp, false, false},
		{"ECN alone", Offload{GSOType: GSOECN}, tcp, false, false},
	} {
		has, ok := tt.off.eagerForm(tt.packet)
		if ok != tt.ok || ok && has != tt.hasChecksum {
			t.Errorf("%s: %v, %v", tt.name, has, ok)
		}
	}
}

// transport makes a random TCP or UDP packet whose checksum field holds the
// pseudo header's sum, and returns it with its metadata and the checksum that
// gVisor computes for it.
func transport(rng *rand.Rand, v6, tcp bool) (p []byte, off Offload, want uint16) {
	start, field, hdr := 20, udpChecksumOff, 8
	proto := tcpip.TransportProtocolNumber(protoUDP)
	if v6 {
		start = 40
	}
	if tcp {
		proto, field, hdr = protoTCP, tcpChecksumOff, 20
	}
	p = make([]byte, start+hdr+rng.IntN(1500))
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	size := uint16(len(p) - start)
	var src, dst tcpip.Address
	if v6 {
		p[0], p[ipv6NextOff] = 0x60, byte(proto)
		src, dst = header.IPv6(p).SourceAddress(), header.IPv6(p).DestinationAddress()
	} else {
		p[0], p[ipv4ProtoOff], p[6], p[7] = 0x45, byte(proto), 0, 0
		src, dst = header.IPv4(p).SourceAddress(), header.IPv4(p).DestinationAddress()
	}
	sum := header.PseudoHeaderChecksum(proto, src, dst, size)
	body := p[start:]
	body[field], body[field+1] = 0, 0
	want = ^checksum.Checksum(body, sum)
	binary.BigEndian.PutUint16(body[field:], sum)
	return p, Offload{Flags: OffloadNeedsChecksum, CsumStart: uint16(start), CsumOffset: uint16(field)}, want
}

// Complete computes what gVisor computes, and nothing else changes.
func TestComplete(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		v6, tcp := i%2 == 0, i%4 < 2
		p, off, want := transport(rng, v6, tcp)
		if want == 0 && !tcp {
			want = 0xffff
		}
		before := bytes.Clone(p)
		left, err := off.Complete(p)
		if err != nil || left != (Offload{}) {
			t.Fatalf("packet %d: left %+v, %v", i, left, err)
		}
		at := int(off.CsumStart + off.CsumOffset)
		if got := binary.BigEndian.Uint16(p[at:]); got != want {
			t.Fatalf("packet %d of %d bytes (v6 %v, tcp %v): checksum %04x, want %04x", i, len(p), v6, tcp, got, want)
		}
		copy(before[at:], p[at:at+2])
		if !bytes.Equal(before, p) {
			t.Fatalf("packet %d: more than the checksum was changed", i)
		}
		if start, offset, ok := checksumAt(p); !ok || start != int(off.CsumStart) || offset != int(off.CsumOffset) {
			t.Fatalf("packet %d: checksumAt %d+%d %v, want %d+%d", i, start, offset, ok, off.CsumStart, off.CsumOffset)
		}
	}
}

// A UDP checksum of 0 would mean that there is none (RFC 768); TCP has no such
// rule.
func TestCompleteZero(t *testing.T) {
	for _, tt := range []struct {
		field uint16
		want  uint16
	}{{udpChecksumOff, 0xffff}, {tcpChecksumOff, 0}} {
		p := make([]byte, 60)
		p[20], p[21] = 0xff, 0xff // the sum over the transport header is 0xffff
		off := Offload{Flags: OffloadNeedsChecksum, CsumStart: 20, CsumOffset: tt.field}
		if _, err := off.Complete(p); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint16(p[20+tt.field:]); got != tt.want {
			t.Errorf("field at %d: %04x, want %04x", tt.field, got, tt.want)
		}
	}
}

func TestCompleteRefuses(t *testing.T) {
	off := Offload{Flags: OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}
	if left, err := off.Complete(make([]byte, 37)); !errors.Is(err, ErrOffload) || left != off {
		t.Errorf("checksum beyond the packet: %+v, %v", left, err)
	}
	off = Offload{Flags: OffloadNeedsChecksum, GSOType: GSOTCPv4, GSOSize: 100, HdrLen: 40, CsumStart: 20, CsumOffset: 16}
	if left, err := off.Complete(make([]byte, 400)); err != nil || left.GSOType != GSOTCPv4 || left.Flags != 0 {
		t.Errorf("segments are still to be cut: %+v, %v", left, err)
	}
}

// Metadata arrives with the frame, in eager form, in full, and for a group.
func TestOffloadArrives(t *testing.T) {
	net := newNet(t, 2, Config{})
	a, b := net.nodes[0], net.nodes[1]
	rng := rand.New(rand.NewPCG(3, 4))
	send := func(p []byte, off Offload, group bool) gotFrame {
		t.Helper()
		buf := a.Alloc()
		buf.SetPacket(copy(buf.Mem()[Headroom:], p))
		buf.Offload = off
		if err := sendOne(a, b.id, buf, group); err != nil {
			t.Fatal(err)
		}
		net.settle()
		got := b.frames.Take()
		if len(got) != 1 {
			t.Fatalf("%d frames", len(got))
		}
		return got[0]
	}
	for i := range 100 {
		p, off, _ := transport(rng, i%2 == 0, i%4 < 2)
		got := send(p, off, false)
		if got.Off != off || !bytes.Equal(got.Bytes[EthernetHeaderLen:], p) {
			t.Fatalf("packet of %d bytes: %+v, want %+v", len(p), got.Off, off)
		}
		if got := send(p, off, true); got.Off != off {
			t.Fatalf("to a group: %+v, want %+v", got.Off, off)
		}
		// The same with metadata that the eager form does not have: complete
		// for a group, as it is for one node.
		if odd := off; len(p) > 62 {
			odd.CsumStart, odd.CsumOffset = off.CsumStart+1, 0
			if got := send(p, odd, false); got.Off != odd {
				t.Fatalf("odd metadata: %+v, want %+v", got.Off, odd)
			}
			if got := send(p, odd, true); got.Off != (Offload{}) {
				t.Fatalf("odd metadata to a group: %+v, want none", got.Off)
			}
		}
	}
	off := Offload{Flags: OffloadNeedsChecksum, GSOType: GSOTCPv4, HdrLen: 40, GSOSize: 100, CsumStart: 20, CsumOffset: 16}
	if got := send(packet4(300, protoTCP, 5, 0), off, false); got.Off != off {
		t.Errorf("segments: %+v, want %+v", got.Off, off)
	}
	if s := a.Stats(); s.TxEager == 0 || s.TxRendezvous == 0 {
		t.Errorf("%d eager, %d by rendezvous: both are wanted", s.TxEager, s.TxRendezvous)
	}
	net.checkIdle()
}

// A group frame cannot leave segmentation to its receivers, nor a checksum that
// is not there.
func TestGroupOffloadRefused(t *testing.T) {
	net := newNet(t, 2, Config{})
	a := net.nodes[0]
	for _, tt := range []struct {
		off  Offload
		want error
	}{
		{Offload{Flags: 1, GSOType: GSOTCPv4, HdrLen: 40, GSOSize: 100, CsumStart: 20, CsumOffset: 16}, ErrGroupGSO},
		{Offload{Flags: 1, CsumStart: 299, CsumOffset: 16}, ErrOffload},
	} {
		buf := a.buf(t, 314)
		buf.Offload = tt.off
		if err := a.SendGroup(63, buf, false); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.off, err, tt.want)
		}
	}
	checkStats(t, a.Stats(), map[string]uint64{"tx_bad_group": 2})
	net.checkIdle()
}

func ExampleOffload() {
	off := Offload{Flags: OffloadNeedsChecksum, CsumStart: 20, CsumOffset: 16}
	fmt.Printf("%x\n", off.AppendWire(nil))
	// Output: 01000000000000140010
}

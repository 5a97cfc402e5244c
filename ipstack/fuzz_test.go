package ipstack

import (
	"testing"

	"exnet/exteth"
)

// fuzzWorld has a host-mode stack under test (1), a peer whose addresses it has
// resolved (2), and a stack in netstack mode (3). It is made once: what earlier
// inputs left in it is part of the test.
type fuzzWorld struct {
	a   *node
	net *Stack
}

// fuzzMTU is small, so that short inputs reach it.
const fuzzMTU = 1280

func newFuzzWorlds(f testing.TB) []fuzzWorld {
	var worlds []fuzzWorld
	for _, fast := range []bool{true, false} {
		w := newWorld(f, fast)
		w.mtu = fuzzMTU
		a := w.add(1, "10.2.0.1/24", "fd00::1/64")
		w.add(2, "10.2.0.2/24", "fd00::2/64")
		a.send(udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, nil))
		a.send(udpPacket(ipSpec{src: "fd00::1", dst: "fd00::2"}, nil))
		_, net := attach(f, w.hub, 3, w.mtu, Config{Clock: w.clock})
		for _, p := range []string{"10.2.0.3/24", "fd00::3/64"} {
			if err := net.AddAddress(mustPrefix(p)); err != nil {
				f.Fatal(err)
			}
		}
		w.settle()
		worlds = append(worlds, fuzzWorld{a, net})
	}
	return worlds
}

// begin makes t the test of what follows, and forgets what was recorded.
//
// +checklocksignore: nobody else is there
func (w fuzzWorld) begin(t *testing.T) {
	w.a.w.t = t
	w.a.w.hub.startLog()
	w.a.w.settle()
	for _, l := range w.a.w.hub.nodes {
		if h, ok := l.stack.host.(*fakeHost); ok {
			h.takeAll()
		}
	}
}

// offloadOfFuzz makes offload metadata of arbitrary numbers.
func offloadOfFuzz(flags, gso uint8, size, start, offset uint16) exteth.Offload {
	return exteth.Offload{Flags: flags, GSOType: gso, GSOSize: size, HdrLen: start, CsumStart: start, CsumOffset: offset}
}

func FuzzReceiveFrame(f *testing.F) {
	for _, s := range frameSeeds() {
		f.Add(s, uint8(0), uint8(0), uint16(0), uint16(0), uint16(0))
		f.Add(s, uint8(1), uint8(1), uint16(100), uint16(20), uint16(16))
	}
	worlds := newFuzzWorlds(f)
	f.Fuzz(func(t *testing.T, frame []byte, flags, gso uint8, size, start, offset uint16) {
		off := offloadOfFuzz(flags, gso, size, start, offset)
		if off.Check(max(len(frame)-ethHdrLen, 0)) != nil {
			return // exteth lets it not pass
		}
		for _, w := range worlds {
			w.begin(t)
			_ = w.a.ReceiveFrame(2, off, lent(frame))
			if len(frame) >= ethHdrLen && frame[5] == 1 {
				frame[5] = 3 // the same for the third node
				_ = w.net.ReceiveFrame(2, off, lent(frame))
				frame[5] = 1
			}
			w.a.w.settle()
			for _, p := range w.a.host.takeAll() {
				if _, n, ok := ipLen(p.packet, len(p.packet)); !ok || n != len(p.packet) || !checkOffload(p.off, p.packet, len(p.packet)) {
					t.Errorf("host got %x with %+v", p.packet, p.off)
				}
			}
		}
	})
}

func FuzzFromHost(f *testing.F) {
	for _, s := range frameSeeds()[1:] {
		p := s[ethHdrLen:]
		f.Add(p, uint8(0), uint8(0), uint16(0), uint16(0), uint16(0), uint16(0))
		f.Add(p, uint8(1), uint8(1), uint16(100), uint16(20), uint16(16), uint16(0))
		f.Add(p, uint8(1), uint8(0), uint16(0), uint16(20), uint16(6), uint16(3000))
	}
	worlds := newFuzzWorlds(f)
	f.Fuzz(func(t *testing.T, p []byte, flags, gso uint8, size, start, offset, more uint16) {
		off := offloadOfFuzz(flags, gso, size, start, offset)
		p = append(p, make([]byte, max(min(int(more), 65535-len(p)), 0))...)
		for _, w := range worlds {
			w.begin(t)
			w.a.send(p, off)
			for _, f := range w.a.w.hub.logged() {
				if f.src != w.a.link.node || f.frame[ethTypeOff+1] == 0x06 { // ARP
					continue
				}
				q := f.frame[ethHdrLen:]
				if _, n, ok := ipLen(q, len(q)); !ok || n != len(q) || !checkOffload(f.off, q, len(q)) || !fitsMTU(f.off, q, fuzzMTU) {
					t.Errorf("sent %x with %+v", q, f.off)
				}
			}
		}
	})
}

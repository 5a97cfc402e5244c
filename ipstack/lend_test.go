package ipstack

import (
	"bytes"
	"sync"
	"testing"

	"exnet/exteth"
)

// countingLink counts how a packet leaves. The stack sends other frames by timers of its own.
type countingLink struct {
	sinkLink
	packet []byte

	mu             sync.Mutex
	posted, copied int    // +checklocks:mu
	last           []byte // +checklocks:mu
}

func (l *countingLink) Post(b *exteth.TxBuffer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has(b.Frame()) {
		l.posted++
	}
	return nil
}

func (l *countingLink) TransmitCopy(_ exteth.Offload, parts ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has(bytes.Join(parts, nil)) {
		l.copied++
	}
	return nil
}

// has reports whether frame is one with the packet, and keeps it if so.
//
// +checklocks:l.mu
func (l *countingLink) has(frame []byte) bool {
	if !bytes.Equal(frame[ethHdrLen:], l.packet) {
		return false
	}
	l.last = bytes.Clone(frame)
	return true
}

// take returns what was counted since the last call.
func (l *countingLink) take() (posted, copied int, last []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	posted, copied, last = l.posted, l.copied, l.last
	l.posted, l.copied, l.last = 0, 0, nil
	return posted, copied, last
}

// A usual packet to a neighbour that is known goes through netstack in its buffer, as it
// is. All others are copied.
func TestLend(t *testing.T) {
	spec := ipSpec{src: "10.2.0.1", dst: "10.2.0.2", options: []byte{1, 1, 1, 1}}
	for _, tt := range append(pathCases, struct {
		name string
		p    []byte
		off  exteth.Offload
	}{"options/64", udpPacket(spec, pattern(64)), exteth.Offload{}}) {
		t.Run(tt.name, func(t *testing.T) {
			l := &countingLink{packet: tt.p}
			c := newPathCase(t, l, false, tt.p, tt.off)
			l.take()
			c.s.FromHost(c.buf)
			posted, copied, frame := l.take()
			if tt.name == "multicast/64" || tt.name == "options/64" {
				if posted != 0 || copied != 1 {
					t.Errorf("%d posted, %d copied, want one copy", posted, copied)
				}
				return
			}
			if posted != 1 || copied != 0 {
				t.Fatalf("%d posted, %d copied, want none copied", posted, copied)
			}
			if dst := macOf(frame); nodeOf(frame) != 2 || dst.IsMulticast() {
				t.Errorf("sent to %v", dst)
			}
		})
	}
}

// A buffer comes back from netstack if the neighbour is to be asked for first; its header
// then leaves for nothing.
func TestLendUnresolved(t *testing.T) {
	w := newWorld(t, false)
	a, b := w.add(1, "10.2.0.1/24"), w.add(2, "10.2.0.2/24")
	p := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(64))
	route, terr := a.findRoute(p)
	if terr != nil {
		t.Fatal(terr)
	}
	defer route.Release()
	buf := a.link.buffers.get(p)
	if taken, terr := a.sendLent(route, buf); taken || terr != nil {
		t.Fatalf("taken %v, error %v", taken, terr)
	}
	a.link.Free(buf)
	w.settle()
	b.expect()
	a.send(p)
	b.expect(p)
}

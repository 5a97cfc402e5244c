package ipstack

import (
	"bytes"
	"sync/atomic"
	"testing"

	"exnet/exteth"
)

// countingLink counts how frames leave.
type countingLink struct {
	sinkLink
	posted, copied atomic.Int64
	last           []byte
}

func (l *countingLink) Post(b *exteth.TxBuffer) error {
	l.posted.Add(1)
	l.last = bytes.Clone(b.Frame())
	return nil
}

func (l *countingLink) TransmitCopy(exteth.Offload, ...[]byte) error {
	l.copied.Add(1)
	return nil
}

// A usual packet to a neighbour that is known goes through netstack in its buffer, as it
// is. All others are copied.
func TestLend(t *testing.T) {
	options := udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(64))
	options = append(options[:v4HdrLen:v4HdrLen], append([]byte{1, 1, 1, 1}, options[v4HdrLen:]...)...)
	options[0]++
	options[v4LengthOff+1] += 4
	for _, tt := range append(pathCases, struct {
		name string
		p    []byte
		off  exteth.Offload
	}{"options/64", options, exteth.Offload{}}) {
		t.Run(tt.name, func(t *testing.T) {
			l := new(countingLink)
			c := newPathCase(t, false, tt.p, tt.off)
			c.s.link = l
			want := bytes.Clone(c.buf.Packet())
			c.s.FromHost(c.buf)
			if tt.name == "multicast/64" || tt.name == "options/64" {
				if l.posted.Load() != 0 || l.copied.Load() != 1 {
					t.Errorf("%d posted, %d copied, want one copy", l.posted.Load(), l.copied.Load())
				}
				return
			}
			if l.posted.Load() != 1 || l.copied.Load() != 0 {
				t.Fatalf("%d posted, %d copied, want none copied", l.posted.Load(), l.copied.Load())
			}
			if !bytes.Equal(l.last[ethHdrLen:], want) {
				t.Errorf("packet\n%x, want\n%x", l.last[ethHdrLen:], want)
			}
			if dst := macOf(l.last); nodeOf(l.last) != 2 || dst.IsMulticast() {
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
	route, terr := a.route(p)
	if terr != nil {
		t.Fatal(terr)
	}
	defer route.Release()
	buf := a.link.buffers.get(p)
	if taken, terr := a.lend(route, buf); taken || terr != nil {
		t.Fatalf("taken %v, error %v", taken, terr)
	}
	a.link.Free(buf)
	w.settle()
	b.expect()
	a.send(p)
	b.expect(p)
}

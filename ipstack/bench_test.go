package ipstack

import (
	"context"
	"fmt"
	"io"
	"testing"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
)

// sinkLink takes every frame and keeps none.
type sinkLink struct{}

func (*sinkLink) NodeID() fabric.NodeID                        { return 1 }
func (*sinkLink) MAC() [6]byte                                 { return arp.DefaultPrefix().MAC(1) }
func (*sinkLink) MTU() int                                     { return 65535 }
func (*sinkLink) Free(*exteth.TxBuffer)                        {}
func (*sinkLink) Post(*exteth.TxBuffer) error                  { return nil }
func (*sinkLink) TransmitCopy(exteth.Offload, ...[]byte) error { return nil }

// sinkHost takes every packet and keeps none.
type sinkHost struct{}

func (*sinkHost) WritePacket(exteth.Offload, foreign.Frame) error { return nil }

// pathCase is a packet on the fast path of a stack between a link and a sink.
type pathCase struct {
	s     *Stack
	buf   *exteth.TxBuffer
	frame []byte
	head  [exteth.HeadLen]byte
}

// receive has the stack take in the frame, as exteth would.
func (c *pathCase) receive(off exteth.Offload) error {
	return c.s.ReceiveFrame(2, off, foreign.Split(foreign.Of(c.frame), c.head[:]))
}

func newPathCase(t testing.TB, link Link, fast bool, packet []byte, off exteth.Offload) *pathCase {
	c := new(pathCase)
	s, err := New(Config{Link: link, Host: &sinkHost{}, NoFastPath: !fast})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c.s = s
	for _, p := range []string{"10.2.0.1/24", "fd00::1/64"} {
		if err := s.AddAddress(mustPrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	peer := tcpipLink(arp.DefaultPrefix().MAC(2))
	for _, a := range []string{"10.2.0.2", "fd00::2"} {
		ip := mustPrefix(a + "/32").Addr()
		if terr := s.Netstack().AddStaticNeighbor(NIC, protocolOf(ip), tcpipAddr(ip), peer); terr != nil {
			t.Fatal(terr)
		}
	}
	pool := newBufferPool(t)
	c.buf = pool.get(packet)
	c.buf.Offload = off
	t.Cleanup(func() { pool.free(c.buf) })
	s.FromHost(c.buf) // the table learns the destination
	etherType := etherTypeIPv4
	if !isIPv4(packet) {
		etherType = etherTypeIPv6
	}
	c.frame = frameFrom(2, 1, etherType, packet)
	return c
}

var pathCases = []struct {
	name string
	p    []byte
	off  exteth.Offload
}{
	{"udp4/64", udpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(64)), exteth.Offload{}},
	{"udp6/64", udpPacket(ipSpec{src: "fd00::1", dst: "fd00::2"}, pattern(64)), exteth.Offload{}},
	{"tso4/64000", tcpPacket(ipSpec{src: "10.2.0.1", dst: "10.2.0.2"}, pattern(64000)),
		exteth.Offload{Flags: exteth.OffloadNeedsChecksum, GSOType: exteth.GSOTCPv4, HdrLen: 40, GSOSize: 1460, CsumStart: 20, CsumOffset: 16}},
	{"multicast/64", udpPacket(ipSpec{src: "10.2.0.1", dst: "239.1.2.3"}, pattern(64)), exteth.Offload{}},
}

func TestFastPathDoesNotAllocate(t *testing.T) {
	for _, tc := range pathCases {
		t.Run(tc.name, func(t *testing.T) {
			c := newPathCase(t, new(sinkLink), true, tc.p, tc.off)
			before := c.s.Stats()
			if n := testing.AllocsPerRun(100, func() { c.s.FromHost(c.buf) }); n != 0 {
				t.Errorf("FromHost: %v allocations", n)
			}
			if n := testing.AllocsPerRun(100, func() {
				if err := c.receive(tc.off); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("ReceiveFrame: %v allocations", n)
			}
			after := c.s.Stats()
			if after[FastTx]-before[FastTx] != 101 || after[FastRx]-before[FastRx] != 101 {
				t.Errorf("fast: %d sent, %d received", after[FastTx]-before[FastTx], after[FastRx]-before[FastRx])
			}
		})
	}
}

func benchmarkPaths(b *testing.B, run func(c *pathCase, off exteth.Offload)) {
	for _, fast := range []bool{true, false} {
		for _, tc := range pathCases {
			b.Run(fmt.Sprintf("fast=%v/packet=%s", fast, tc.name), func(b *testing.B) {
				c := newPathCase(b, new(sinkLink), fast, tc.p, tc.off)
				b.SetBytes(int64(len(tc.p)))
				b.ReportAllocs()
				for b.Loop() {
					run(c, tc.off)
				}
			})
		}
	}
}

func BenchmarkFromHost(b *testing.B) {
	benchmarkPaths(b, func(c *pathCase, _ exteth.Offload) { c.s.FromHost(c.buf) })
}

func BenchmarkReceiveFrame(b *testing.B) {
	benchmarkPaths(b, func(c *pathCase, off exteth.Offload) { _ = c.receive(off) })
}

// BenchmarkTCP is a stream between two stacks in netstack mode.
func BenchmarkTCP(b *testing.B) {
	for _, mtu := range []int{1500, 9000, 65535} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			sa, sb, _ := pair(b, mtu, false, bothFamilies...)
			l, err := sb.Listen("tcp", "10.2.0.2:80")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					b.Error(err)
					return
				}
				defer c.Close()
				buf := make([]byte, 1<<17)
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf); err != nil {
					b.Error(err)
				}
			}()
			c, err := sa.DialContext(context.Background(), "tcp", "10.2.0.2:80")
			if err != nil {
				b.Fatal(err)
			}
			data := make([]byte, 1<<17)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			if err := c.Close(); err != nil {
				b.Error(err)
			}
			<-done
		})
	}
}

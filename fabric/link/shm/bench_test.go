package shm_test

import (
	"fmt"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
)

// Half a round trip of a message between two processes that poll. It needs two
// idle cores. The control is in BenchmarkLine.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 64, 120} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p := spawn(b, "echo")
			msg := make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.velo.Send(toPeer(1), msg); err != nil {
					b.Fatal(err)
				}
				for {
					if _, _, ok := p.velo.Peek(); ok {
						break
					}
				}
				p.velo.Advance()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half-rtt")
		})
	}
}

// GETs from another process, depth of them under way, beside a plain copy.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		p := spawn(b, fmt.Sprint("serve:", size))
		var nla, sink uint64
		p.line(b, &nla)
		p.line(b, &sink)
		mem, err := p.nic.ATU().Alloc(size)
		if err != nil {
			b.Fatal(err)
		}
		dst, err := p.nic.ATU().Register(vpid, mem, atu.Write)
		if err != nil {
			b.Fatal(err)
		}
		for _, depth := range []int{1, 4} {
			b.Run(fmt.Sprintf("size=%d/depth=%d", size, depth), func(b *testing.B) {
				req := rma.GetReq{Local: dst.NLA(), Remote: atu.NLA(nla), Len: size, Node: 1, VPID: vpid,
					Notify: rma.NotifyCompleter}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				under := 0
				end := func() {
					for {
						n, ok := p.rma.Next()
						if !ok {
							continue
						}
						if n.Status != fabric.StatusOK {
							b.Fatal(n)
						}
						under--
						return
					}
				}
				for b.Loop() {
					if err := p.rma.Get(req); err != nil {
						b.Fatal(err)
					}
					if under++; under == depth {
						end()
					}
				}
				for under > 0 {
					end()
				}
			})
		}
		b.Run(fmt.Sprintf("size=%d/path=copy", size), func(b *testing.B) {
			from := make([]byte, size)
			pattern(from, 1)
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(mem, from)
			}
		})
	}
}

package wire_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/wire"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// GETs and PUTs, depth of them at a time, over a good medium.
func BenchmarkTransfer(b *testing.B) {
	for _, size := range []int{64, 4096, 1 << 20} {
		for _, depth := range []int{1, 64} {
			for _, get := range []bool{true, false} {
				b.Run(fmt.Sprintf("get=%v/depth=%d/size=%d", get, depth, size), func(b *testing.B) {
					_, nics := newFabric(b, wire.Faults{}, wire.Config{}, 2)
					r := fabrictest.OpenRMA(b, nics[0], vpid, rma.Config{})
					fabrictest.OpenRMA(b, nics[1], vpid, rma.Config{})
					local := fabrictest.Register(b, nics[0], vpid, size, atu.Read|atu.Write)
					remote, err := fabrictest.Register(b, nics[1], vpid, size, atu.Read|atu.Write).LendAll()
					if err != nil {
						b.Fatal(err)
					}
					begin := func() error {
						if get {
							return r.Get(rma.GetReq{Local: local.NLA(), Remote: remote, Len: size, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter})
						}
						return r.Put(rma.PutReq{Local: local.NLA(), Remote: remote, Len: size, Node: 1, VPID: vpid, Notify: rma.NotifyRequester})
					}
					b.SetBytes(int64(size))
					b.ReportAllocs()
					b.ResetTimer()
					for begun, ended := 0, 0; ended < b.N; {
						for begun < b.N && begun-ended < depth {
							if err := begin(); err != nil {
								b.Fatal(err)
							}
							begun++
						}
						n, ok := r.Next()
						if !ok {
							runtime.Gosched()
							continue
						}
						if n.Status != fabric.StatusOK {
							b.Fatal(n)
						}
						ended++
					}
				})
			}
		}
	}
}

// A message there and one back.
func BenchmarkRoundTrip(b *testing.B) {
	_, nics := newFabric(b, wire.Faults{}, wire.Config{}, 2)
	ends := [2]*velo.Endpoint{fabrictest.OpenVELO(b, nics[0], vpid, velo.Config{}), fabrictest.OpenVELO(b, nics[1], vpid, velo.Config{})}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		for i, e := range ends {
			for {
				err := e.Send(velo.Descriptor{Dst: fabric.NodeID(1 - i), VPID: vpid}, make([]byte, 64))
				if err == nil {
					break
				}
				if !errors.Is(err, fabric.ErrAgain) {
					b.Fatal(err)
				}
				runtime.Gosched()
			}
			for {
				if _, _, ok := ends[1-i].Peek(); ok {
					break
				}
				runtime.Gosched()
			}
			ends[1-i].Advance()
		}
	}
}

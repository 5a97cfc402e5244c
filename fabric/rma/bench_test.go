package rma_test

import (
	"fmt"
	"testing"

	"exnet/fabric"
	"exnet/fabric/rma"
)

// A GET with its notifications read, beside a plain copy of the same memory in
// the same run.
func BenchmarkGet(b *testing.B) {
	for _, size := range []int{64, 1500, 4 << 10, 64 << 10, 1 << 20, 8 << 20} {
		r := newRig(b, size, rma.Config{})
		get := func(notify rma.Notify) func(b *testing.B) {
			return func(b *testing.B) {
				req := r.get(size, notify)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := r.origin.Get(req); err != nil {
						b.Fatal(err)
					}
					if n, ok := r.origin.Next(); !ok || n.Status != fabric.StatusOK {
						b.Fatal(n, ok)
					}
					if notify&rma.NotifyResponder != 0 {
						r.target.Next()
					}
				}
			}
		}
		b.Run(fmt.Sprintf("path=onesided/size=%d", size), get(rma.NotifyCompleter))
		b.Run(fmt.Sprintf("path=twosided/size=%d", size), get(rma.NotifyCompleter|rma.NotifyResponder))
		b.Run(fmt.Sprintf("path=copy/size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				copy(r.local.Bytes(), r.remote.Bytes())
			}
		})
	}
}

func BenchmarkPutImmediate(b *testing.B) {
	r := newRig(b, 100, rma.Config{})
	req := rma.PutImmediateReq{Len: 9, Remote: r.remoteNLA, Node: 1, VPID: there, Notify: rma.NotifyRequester}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.origin.PutImmediate(req); err != nil {
			b.Fatal(err)
		}
		r.origin.Next()
	}
}

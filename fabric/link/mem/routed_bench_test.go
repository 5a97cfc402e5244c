package mem_test

import (
	"fmt"
	"testing"

	"exnet/fabric"
	"exnet/fabric/velo"
	"exnet/internal/racetest"
)

func TestRoutedSendsDoNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("sync.Pool forgets with -race")
	}
	r := torus(t, 4, 4, 4)
	group := velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}
	payload := make([]byte, 120)
	for name, f := range map[string]func() error{
		"VELO": func() error { return r.send(0, 42) },
		"GET":  func() error { return r.get(0, 42) },
		"multicast": func() error {
			for i := range r.velo[1:] {
				for _, _, ok := r.velo[i+1].Peek(); ok; _, _, ok = r.velo[i+1].Peek() {
					r.velo[i+1].Advance()
				}
			}
			return r.velo[0].SendMulticast(group, payload)
		},
	} {
		n := testing.AllocsPerRun(50, func() {
			if err := f(); err != nil {
				t.Fatal(name, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// A VELO message and a GET over a number of links, read at once. Compare with
// BenchmarkMessage and BenchmarkGet of fabrics without topology.
func BenchmarkRouted(b *testing.B) {
	r := torus(b, 8, 8, 8)
	for _, to := range []int{0, 1, 3 + 3*8, 4 + 4*8 + 4*64} {
		hops := r.Routes().Hops(0, fabric.NodeID(to))
		b.Run(fmt.Sprintf("op=velo/hops=%d", hops), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.send(0, to); err != nil {
					b.Fatal(err)
				}
				r.velo[to].Peek()
				r.velo[to].Advance()
			}
		})
		b.Run(fmt.Sprintf("op=get/size=%d/hops=%d", getSize, hops), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.get(0, to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

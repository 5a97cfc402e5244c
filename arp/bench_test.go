package arp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"exnet/fabric"
)

// BenchmarkLookup looks destinations up in random order, the worst for the
// caches; one=true: always the same, as within a stream.
func BenchmarkLookup(b *testing.B) {
	for _, entries := range []int{8, 1 << 16} {
		for _, family := range []int{4, 6} {
			for _, one := range []bool{true, false} {
				b.Run(fmt.Sprintf("entries=%d/ipv=%d/one=%v", entries, family, one), func(b *testing.B) {
					address := address4
					if family == 6 {
						address = address6
					}
					tab, dsts := lookups(b, entries, address, one)
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						if _, ok := tab.Lookup(dsts[i&(len(dsts)-1)]); !ok {
							b.Fatal("not found")
						}
						i++
					}
				})
			}
		}
	}
}

// BenchmarkLookupParallel has readers on all cores, beside a writer.
func BenchmarkLookupParallel(b *testing.B) {
	tab, dsts := lookups(b, 1<<15, address4, false)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = tab.Put(tab.Generation(), address6(i%1000), entry(1))
			}
		}
	}()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.Int(); pb.Next(); i++ {
			if _, ok := tab.Lookup(dsts[i&(len(dsts)-1)]); !ok {
				b.Error("not found")
			}
		}
	})
	close(stop)
	<-stopped
}

func lookups(b *testing.B, entries int, address func(int) netip.Addr, one bool) (*Table, [][]byte) {
	tab := NewTable(0)
	for i := range entries {
		if err := tab.Put(0, address(i), entry(fabric.NodeID(i))); err != nil {
			b.Fatal(err)
		}
	}
	dsts := make([][]byte, entries)
	for i, j := range rand.Perm(entries) {
		if one {
			j = 0
		}
		dsts[i] = address(j).AsSlice()
	}
	if one {
		dsts = dsts[:1]
	}
	return tab, dsts
}

func BenchmarkPut(b *testing.B) {
	tab := NewTable(0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := tab.Put(0, address4(i%DefaultEntries), entry(1)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

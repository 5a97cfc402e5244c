package velo_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/profile"
	"exnet/fabric/velo"
)

// Send, Peek and Advance in one goroutine.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{8, 120} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			x, y := pair(b, velo.Config{})
			payload := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := x.Send(to(1), payload); err != nil {
					b.Fatal(err)
				}
				if _, _, ok := y.Peek(); !ok {
					b.Fatal("no message")
				}
				y.Advance()
			}
		})
	}
}

// One way of a message between two goroutines that poll. It needs two idle cores.
// path=control is the least that any such thing can take: one word that goes
// back and forth.
func BenchmarkPingPong(b *testing.B) {
	half := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half-rtt")
	}
	b.Run("path=control", func(b *testing.B) {
		var there, back struct {
			atomic.Uint64
			_ [120]byte
		}
		var wg sync.WaitGroup
		const stop = 1 << 62
		wg.Go(func() {
			for i := uint64(1); ; i++ {
				v := there.Load()
				for v < i {
					v = there.Load()
				}
				back.Store(i)
				if v == stop {
					return
				}
			}
		})
		i := uint64(0)
		for b.Loop() {
			i++
			there.Store(i)
			for back.Load() < i {
			}
		}
		half(b)
		there.Store(stop)
		wg.Wait()
	})
	for _, size := range []int{8, 64, 120} {
		b.Run(fmt.Sprintf("path=velo/size=%d", size), func(b *testing.B) {
			x, y := pair(b, velo.Config{})
			const stop = 1
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					st, p, ok := y.Peek()
					if !ok {
						continue
					}
					if err := y.Send(to(0), p); err != nil { // p is lent until Advance
						b.Error(err)
						return
					}
					y.Advance()
					if st.Tag == stop {
						return
					}
				}
			})
			payload := make([]byte, size)
			round := func(tag uint8) {
				d := to(1)
				d.Tag = tag
				if err := x.Send(d, payload); err != nil {
					b.Fatal(err)
				}
				for {
					if _, _, ok := x.Peek(); ok {
						x.Advance()
						return
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				round(0)
			}
			half(b)
			round(stop)
			wg.Wait()
		})
	}
}

// Messages from one goroutine to another.
func BenchmarkStream(b *testing.B) {
	x, y := pair(b, velo.Config{})
	payload := make([]byte, 120)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			drain(y)
		}
	})
	b.SetBytes(120)
	b.ReportAllocs()
	for b.Loop() {
		for x.Send(to(1), payload) != nil {
		}
	}
	stop.Store(true)
	wg.Wait()
}

// A message whose handler reads it in the sender's goroutine.
func BenchmarkInline(b *testing.B) {
	x, y := pair(b, velo.Config{})
	y.OnInterrupt(func() {
		drain(y)
		y.EnableInterrupt()
	})
	y.EnableInterrupt()
	payload := make([]byte, 120)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Send(to(1), payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMulticast(b *testing.B) {
	for _, members := range []int{1, 8, 63} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			eps := mailboxes(b, fabrictest.New(b, members+1), velo.Config{})
			d := velo.Descriptor{Group: fabric.GroupBroadcast, VPID: vpid}
			payload := make([]byte, 120)
			b.ReportAllocs()
			for b.Loop() {
				if err := eps[0].SendMulticast(d, payload); err != nil {
					b.Fatal(err)
				}
				for _, e := range eps[1:] {
					drain(e)
				}
			}
		})
	}
}

// What a profile costs a message of 64 bytes: the same endpoints send with it and
// without, in turns. The metric is the median of the turns' ratios. path=loop sends and
// reads in one goroutine, the least that a message can take; path=pingpong goes back and
// forth between two, and needs two idle cores.
func BenchmarkProfile(b *testing.B) {
	payload := make([]byte, 64)
	b.Run("path=loop", func(b *testing.B) {
		nics := fabrictest.New(b, 2)
		eps := mailboxes(b, nics, velo.Config{})
		ratio(b, nics, func() {
			for range 4096 {
				if err := eps[0].Send(to(1), payload); err != nil {
					b.Fatal(err)
				}
				if _, _, ok := eps[1].Peek(); !ok {
					b.Fatal("no message")
				}
				eps[1].Advance()
			}
		})
	})
	b.Run("path=pingpong", func(b *testing.B) {
		nics := fabrictest.New(b, 2)
		eps := mailboxes(b, nics, velo.Config{})
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for !stop.Load() {
				if _, p, ok := eps[1].Peek(); ok {
					if err := eps[1].Send(to(0), p); err != nil {
						b.Error(err)
						return
					}
					eps[1].Advance()
				}
			}
		})
		ratio(b, nics, func() {
			for range 512 {
				if err := eps[0].Send(to(1), payload); err != nil {
					b.Fatal(err)
				}
				for _, _, ok := eps[0].Peek(); !ok; _, _, ok = eps[0].Peek() {
				}
				eps[0].Advance()
			}
		})
		stop.Store(true)
		wg.Wait()
	})
}

// ratio reports how long run takes with a profile, in proportion to before and after.
func ratio(b *testing.B, nics []*nic.NIC, run func()) {
	b.Helper()
	p := profile.New()
	timed := func(p *profile.Profile) float64 {
		for _, n := range nics {
			n.SetProfile(p)
		}
		begin := time.Now()
		run()
		return time.Since(begin).Seconds()
	}
	var ratios []float64
	for b.Loop() {
		off := timed(nil)
		on := timed(p)
		ratios = append(ratios, 2*on/(off+timed(nil)))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "with/without")
}

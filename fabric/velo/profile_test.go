package velo_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/profile"
	"exnet/fabric/velo"
)

// A profile's counts are exact when nothing is under way, whatever sizes several
// goroutines send through one flow, and whatever is refused or multicast in between.
func TestProfileUnderLoad(t *testing.T) {
	nics := fabrictest.New(t, 2)
	eps := mailboxes(t, nics, velo.Config{Slots: 64, Credits: 8})
	if err := nics[0].Routes().Join(3, 1); err != nil {
		t.Fatal(err)
	}
	p := profile.New()
	for _, n := range nics {
		n.SetProfile(p)
	}
	const senders, messages = 3, 1000
	var all sync.WaitGroup
	var mu sync.Mutex
	want := make(map[uint64]uint64)
	multicasts := uint64(0)
	for s := range senders {
		all.Go(func() {
			sent, groups := make(map[uint64]uint64), uint64(0)
			for i := range messages {
				n := 64
				if i%5 == s {
					n = 1 + i%120
				}
				d, send := to(1), eps[0].Send
				if i%97 == 0 {
					d.Group, send = 3, eps[0].SendMulticast
				}
				err := send(d, make([]byte, n))
				for ; errors.Is(err, fabric.ErrAgain); err = send(d, make([]byte, n)) {
					runtime.Gosched()
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%97 == 0 {
					groups++
				} else {
					sent[uint64(n)]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			multicasts += groups
			for n, c := range sent {
				want[n] += c
			}
		})
	}
	for got := 0; got < senders*messages && !t.Failed(); {
		if _, _, ok := eps[1].Peek(); ok {
			eps[1].Advance()
			got++
			continue
		}
		runtime.Gosched()
	}
	all.Wait()
	check := func(when string) {
		t.Helper()
		flows, groups := p.Flows(), p.Multicasts()
		if len(flows) != 1 || len(groups) != 1 {
			t.Fatalf("%s: flows %+v, multicasts %+v", when, flows, groups)
		}
		for _, s := range flows[0].Sizes {
			if s.Count != want[s.Size] {
				t.Errorf("%s: %d messages of %d bytes, want %d", when, s.Count, s.Size, want[s.Size])
			}
		}
		if n := (profile.Flow{Sizes: groups[0].Sizes}).Messages(); n != multicasts || len(flows[0].Sizes) != len(want) {
			t.Errorf("%s: %d multicasts, want %d; sizes %v", when, n, multicasts, flows[0].Sizes)
		}
	}
	check("on")
	for _, n := range nics {
		n.SetProfile(nil)
	}
	if err := eps[0].Send(to(1), []byte{1}); err != nil {
		t.Fatal(err)
	}
	check("off")
}

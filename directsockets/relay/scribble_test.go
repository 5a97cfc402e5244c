package relay

import (
	"math/rand/v2"
	"sync"
	"testing"

	"exnet/directsockets/segment"
	"exnet/internal/shm"
)

// A program, here or on the other host, writes into its segment all the time, what may pass for
// true and noise, while bytes are carried and an end falls back. Both nodes go on, and so do other
// connections.
func TestScribbledProgram(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	good := hosts[0].call(t, hosts[1], segment.Config{Slots: 16, Ring: 64 << 10})
	goodServer := hosts[1].answer(t)
	until(t, "attached", good.Attached)
	sum := func() (s Stats) {
		for _, h := range hosts {
			n := h.engine.Stats()
			s.Breaches += n.Breaches
			s.BytesReceived += n.BytesReceived
			s.Connections += n.Connections
		}
		return s
	}
	var others sync.WaitGroup
	for way, ends := range [][2]*segment.End{{good, goodServer}, {goodServer, good}} {
		others.Go(func() { sendWords(t, ends[0], uint64(way), 8<<20) })
		others.Go(func() { receiveWords(t, ends[1], uint64(way), 8<<20) })
	}
	for round := 0; round < 12 || sum().Breaches == 0; round++ {
		if round == 1000 {
			t.Fatalf("nobody noticed: %+v", sum())
		}
		client := hosts[0].call(t, hosts[1], segment.Config{Slots: 16, Ring: 64 << 10})
		server := hosts[1].answer(t)
		until(t, "attached", client.Attached)
		seed := rand.Uint64()
		mem := []*segment.End{client, server}[round&1].Segment().Exposed()
		stop := make(chan struct{})
		var users, foe sync.WaitGroup
		foe.Go(func() {
			r := rand.New(rand.NewPCG(seed, 0))
			for {
				select {
				case <-stop:
					return
				default:
					scribble(mem, round&1, r)
				}
			}
		})
		for i, e := range []*segment.End{client, server} {
			users.Go(func() { use(e, rand.New(rand.NewPCG(seed, uint64(i)+1))) })
		}
		users.Wait()
		close(stop)
		foe.Wait()
		_, _ = client.Close(false), server.Close(false)
		until(t, "the connection is gone", func() bool { return sum().Connections == 2 })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	others.Wait()
	t.Logf("%+v", sum())
}

// use has an End do what a program does.
func use(e *segment.End, r *rand.Rand) {
	p := make([]byte, 5000)
	_ = e.Promote(0)
	for range 2000 {
		switch r.IntN(40) {
		case 0:
			e.ArmRX()
		case 1:
			e.ArmTX()
		case 2:
			if r.IntN(20) == 0 {
				_ = e.FallBack()
			}
		case 3:
			_ = e.ReturnToTCP(func(p []byte) (int, error) { return len(p), nil })
		case 4:
			e.Awake()
		default:
			if r.IntN(2) == 0 {
				_, _ = e.Send(p[:1+r.IntN(len(p))])
			} else {
				_, _ = e.Recv(p[:1+r.IntN(len(p))])
			}
		}
	}
}

// scribble writes one thing into a segment of 16 slots and 65,536 bytes a ring (SPEC.md, 2): what
// the program at that side has the node read.
func scribble(mem []byte, side int, r *rand.Rand) {
	put := func(off int, n uint64) { shm.Words(mem, off&^7, 1)[0].Store(n) }
	control, slot := 512+512*side, 4096+16*128*side+128*r.IntN(16)
	switch k := r.IntN(20_000); {
	case k == 0:
		put(control+8*r.IntN(3), r.Uint64N(100))
	case k == 1: // attention and cpu
		put(control+128, r.Uint64N(128)&r.Uint64N(128)|r.Uint64N(8)<<8)
	case k == 2: // state and flags
		put(control+136, r.Uint64N(4)|r.Uint64N(64)<<32)
	case k == 3:
		put(control+144+8*r.IntN(2), r.Uint64N(40))
	case k == 4:
		put(control+256+8*r.IntN(18), r.Uint64N(10))
	case k == 5:
		put(r.IntN(4096+2*16*128), r.Uint64())
	case k < 40: // a message that is there, or not yet
		tag, n := segment.Tag(1+r.IntN(2)), r.IntN(256)
		if r.IntN(4) == 0 {
			tag, n = segment.Tag(3+r.IntN(6)), []int{28, 8, 0, 20}[r.IntN(4)]
		}
		put(slot, uint64(1+r.IntN(8))|uint64(tag)<<32|uint64(n)<<40)
	case k < 2000:
		put(slot+8, r.Uint64N(4)|r.Uint64N(66000)<<32)
	default: // place and advance of data
		put(slot+16+8*r.IntN(2), r.Uint64N(80_000))
	}
}

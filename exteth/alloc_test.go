package exteth

import (
	"fmt"
	"testing"

	"exnet/fabric"
	"exnet/foreign"
)

// sinkReceiver takes frames and looks at nothing.
type sinkReceiver struct{ frames, bytes int }

func (s *sinkReceiver) ReceiveFrame(_ fabric.NodeID, _ Offload, frame foreign.Frame) error {
	s.frames++
	s.bytes += frame.Len()
	return nil
}

// pair is two Ports that are polled by the caller, without a recording receiver.
func pair(tb testing.TB, cfg Config) (a, b *Port, rx *sinkReceiver) {
	tb.Helper()
	net := newNet(tb, 2, cfg)
	rx = new(sinkReceiver)
	a, b = net.nodes[0].Port, net.nodes[1].Port
	b.cfg.Receiver = rx
	return a, b, rx
}

// pass sends a frame of size bytes from a to b, all the way.
func pass(tb testing.TB, a, b *Port, group bool, size int) {
	buf := a.Alloc()
	buf.SetPacket(size - EthernetHeaderLen)
	var err error
	if group {
		err = a.SendGroup(fabric.GroupBroadcast, buf, false)
	} else {
		err = a.Send(2, buf)
	}
	if err != nil {
		tb.Fatal(err)
	}
	b.PollVELO(64)
	b.PollRMA(64)
	a.PollRMA(64)
}

// No frame costs an allocation, from Alloc to the free buffer.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, tt := range []struct {
		name  string
		size  int
		group bool
	}{
		{"eager", 64, false},
		{"eager", 480, false},
		{"rendezvous", 1500, false},
		{"rendezvous", 65535, false},
		{"group", 300, true},
	} {
		t.Run(fmt.Sprintf("%s/size=%d", tt.name, tt.size), func(t *testing.T) {
			a, b, rx := pair(t, Config{})
			// The loans' map grows and is rehashed now and then: many runs
			// would show it.
			const runs = 20000
			if got := testing.AllocsPerRun(runs, func() { pass(t, a, b, tt.group, tt.size) }); got != 0 {
				t.Errorf("%v allocations per frame", got)
			}
			if rx.frames != runs+1 {
				t.Errorf("%d frames arrived of %d", rx.frames, runs+1)
			}
		})
	}
	t.Run("codec", func(t *testing.T) {
		ad := goldenAdvert()
		buf := make([]byte, 0, AdvertLen)
		if got := testing.AllocsPerRun(100, func() {
			b, _ := ad.AppendBinary(buf)
			if ad.UnmarshalBinary(b) != nil {
				t.Fatal("not decoded")
			}
		}); got != 0 {
			t.Errorf("%v allocations per advert", got)
		}
	})
}

// As many loans as a peer may have at a time come and go without garbage. All
// allocations of many rounds are counted, since a round's average is rounded.
func TestLoanAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b, _ := pair(t, Config{})
	rounds := func() {
		for range 1000 {
			for range 32 {
				buf := a.Alloc()
				buf.SetPacket(1000)
				if err := a.Send(2, buf); err != nil {
					t.Fatal(err)
				}
			}
			b.PollVELO(64)
			b.PollRMA(64)
			a.PollRMA(64)
		}
	}
	if got := testing.AllocsPerRun(1, rounds); got > 10 {
		t.Errorf("%v allocations in 32000 frames", got)
	}
}

// copyReceiver copies frames.
type copyReceiver struct{ dst []byte }

func (c *copyReceiver) ReceiveFrame(_ fabric.NodeID, _ Offload, frame foreign.Frame) error {
	frame.CopyTo(c.dst)
	return nil
}

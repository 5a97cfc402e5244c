package credit

import (
	"errors"
	"testing"
)

func run(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func posted(payload, bulk, credits, packets int) Config {
	return Config{Payload: payload, Bulk: bulk, Credits: credits, Packets: [VCs]int{Posted: packets}}
}

// TestSums: the thesis has 893 ns in table 8 and about 1480 in table 9; a packet takes
// the latter.
func TestSums(t *testing.T) {
	if n := Sum(Access()); n != 893 {
		t.Errorf("table 8: %d ns", n)
	}
	if n := Sum(Packet()); n != 1478 {
		t.Errorf("table 9: %d ns", n)
	}
	if r := run(t, posted(1, 1, 1, 1)); r.Ns != 1478 {
		t.Errorf("one packet takes %v ns", r.Ns)
	}
}

// TestLoop: with a single credit a packet waits for the way there and back; with enough, the
// slowest stage is busy all the time.
func TestLoop(t *testing.T) {
	const loop = 1478 + 244 + 122 + 244 + 298 + 222 // and the NOP's way back
	if r := run(t, posted(1, 1, 1, 1000)); r.Ns != 999*loop+1478 {
		t.Errorf("one credit: %v ns, want %d", r.Ns, 999*loop+1478)
	}
	const slowest = 244 + 19*72 // encapsulation of 20 packets
	r := run(t, posted(20, 10, 1000, 100000))
	if most := 20 * 64 * 8.0 / slowest; r.GoodputGbps > most || r.GoodputGbps < 0.99*most {
		t.Errorf("%v Gbit/s, want %v", r.GoodputGbps, most)
	}
}

// TestPayload is what the text of 6.4.2 says about figures 36 to 38.
func TestPayload(t *testing.T) {
	const packets, credits = 50000, 256
	of := func(payload, bulk int) Result { return run(t, posted(payload, bulk, credits, packets)) }
	base := of(1, 1)
	for _, payload := range []int{5, 10, 20} {
		one, ten, fifty := of(payload, 1), of(payload, 10), of(payload, 50)
		if d := one.GoodputGbps / base.GoodputGbps; d < 0.98 || d > 1.02 {
			t.Errorf("%d packets, one NOP: %v times the base case, want the same", payload, d)
		}
		if ten.GoodputGbps < 2*base.GoodputGbps {
			t.Errorf("%d packets, 10 NOPs: %v Gbit/s, one NOP: %v", payload, ten.GoodputGbps, base.GoodputGbps)
		}
		if d := fifty.GoodputGbps / ten.GoodputGbps; d < 0.98 || d > 1.02 {
			t.Errorf("%d packets: 50 NOPs bring %v times what 10 bring, want the same", payload, d)
		}
		// The payload exceeds the bulk: the sender runs out of credits.
		if one.Credits >= float64(payload) || ten.Credits < 5*one.Credits || fifty.Credits < 5*one.Credits {
			t.Errorf("%d packets: mean credits %v, %v, %v", payload, one.Credits, ten.Credits, fifty.Credits)
		}
		if ten.Frames+ten.NOPs >= one.Frames+one.NOPs || fifty.NOPs >= ten.NOPs || fifty.ReturnGbps >= ten.ReturnGbps {
			t.Errorf("%d packets: bulks do not save frames: %+v %+v %+v", payload, one, ten, fifty)
		}
		if ten.InNs <= base.InNs {
			t.Errorf("%d packets wait %v ns at the receiver, one %v", payload, ten.InNs, base.InNs)
		}
	}
	small, large := of(1, 10), of(20, 10)
	if small.OutNs < 2*large.OutNs || small.InNs*5 > large.InNs {
		t.Errorf("delays: %v and %v ns for one packet, %v and %v for 20", small.OutNs, small.InNs, large.OutNs, large.InNs)
	}
}

// TestChannels: packets that nobody takes hold up their channel, when its credits are used up, and
// no other.
func TestChannels(t *testing.T) {
	for v := range VCs {
		c := Config{Payload: 3, Bulk: 2, Credits: 10, Packets: [VCs]int{1000, 1001, 1003}}
		c.Stalled[v] = true
		r := run(t, c)
		for w := range VCs {
			sent, done := c.Packets[w], c.Packets[w]
			if w == v {
				sent, done = 9, 0 // the tenth waits for a full frame's credits
			}
			if r.Sent[w] != sent || r.Done[w] != done {
				t.Errorf("%v stalled: %v: sent %d, taken %d of %d", v, w, r.Sent[w], r.Done[w], c.Packets[w])
			}
		}
	}
	c := posted(3, 2, 4, 1000)
	if a, b := run(t, c), run(t, c); a != b || a.Done[Posted] != 1000 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		posted(0, 1, 1, 1), posted(1, 0, 1, 1), posted(21, 1, 99, 1), posted(1, 301, 999, 1),
		posted(20, 50, 68, 1), posted(1, 1, 1<<20+1, 1), posted(1, 1, 1, -1),
	} {
		if _, err := Run(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if r := run(t, posted(20, 50, 69, 1000)); r.Done[Posted] != 1000 {
		t.Errorf("%+v", r)
	}
}

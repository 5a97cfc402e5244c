package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

// side is one of two ends of a medium that is a list of packets.
type side struct {
	arq
	sent uint32
	next uint32 // message to send next
	want uint32 // message to come next
}

// flight is a packet on its way, a copy.
type flight struct {
	packet
	damaged bool
}

// TestARQ runs two sides over a medium that does everything that a medium can do, on a
// clock of its own: every message comes once and in order, and in the end nothing is
// outstanding.
func TestARQ(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(0, 0)
		room := uint16(1 + rnd.IntN(Window))
		bad := float64(rnd.IntN(40)) / 100
		sides := [2]*side{{}, {}}
		for _, s := range sides {
			s.init(room)
			s.arq.next += uint32(seed) * 0x01fffff7 // numbers wrap
			s.base, s.resend, s.sent = s.arq.next, s.arq.next, s.arq.next
		}
		sides[0].expect, sides[1].expect = sides[1].base, sides[0].base
		var ways [2][]flight // to each side
		const messages = 400
		for step := 0; ; step++ {
			if step > 200000 {
				t.Fatalf("seed %d: no end: %+v %+v", seed, sides[0], sides[1])
			}
			finished := true
			for i, s := range sides {
				for s.next < messages && !s.replayFull() && rnd.IntN(3) > 0 {
					var m [4]byte
					binary.LittleEndian.PutUint32(m[:], s.next)
					s.pushMessage(m[:], now)
					s.next++
				}
				for {
					p, _, ok := s.nextPacket(&s.sent)
					if !ok {
						break
					}
					p.message = append([]byte(nil), p.message...)
					f := flight{packet: p}
					switch r := rnd.Float64(); {
					case r < bad/4: // lost
						continue
					case r < bad/2:
						f.damaged = true
					case r < bad*3/4:
						ways[1-i] = append(ways[1-i], f) // twice
					case r < bad:
						n := len(ways[1-i])
						ways[1-i] = append(ways[1-i], f)
						if n > 0 {
							j := rnd.IntN(n)
							ways[1-i][n], ways[1-i][j] = ways[1-i][j], ways[1-i][n]
						}
						continue
					}
					ways[1-i] = append(ways[1-i], f)
				}
				if _, down := s.retryOldest(now, time.Hour); down {
					t.Fatalf("seed %d: down", seed)
				}
				finished = finished && s.next == messages && s.want == messages && !s.hasOutstanding()
			}
			if finished {
				break
			}
			for i, s := range sides {
				for n := rnd.IntN(20); n > 0 && len(ways[i]) > 0; n-- {
					f := ways[i][0]
					ways[i] = ways[i][1:]
					if f.damaged {
						s.noteDamaged()
						continue
					}
					if m, _, ok := s.receivePacket(f.packet, now); ok {
						if got := binary.LittleEndian.Uint32(m); got != s.want {
							t.Fatalf("seed %d: message %d, want %d", seed, got, s.want)
						}
						s.want++
					}
				}
				if rnd.IntN(4) == 0 {
					s.ackReceived()
				}
			}
			now = now.Add(time.Duration(rnd.IntN(1000)) * time.Microsecond)
		}
	}
}

// A peer that stops acknowledging is given up after the time stated, not before. The
// time for which this side itself was stopped does not count.
func TestARQDown(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Second} {
		testARQDown(t, late)
	}
}

func testARQDown(t *testing.T, late time.Duration) {
	var a arq
	a.init(Window)
	now := time.Unix(100, 0)
	a.pushMessage([]byte{1}, now)
	var sent uint32
	a.nextPacket(&sent)
	end := now.Add(time.Second + late)
	for {
		if a.timer.Before(now) {
			t.Fatalf("timer %v at %v", a.timer, now)
		}
		now = a.timer
		if a.rto == maxRTO { // in the middle
			now, late = now.Add(late), 0
		}
		_, down := a.retryOldest(now, time.Second)
		if down {
			break
		}
		for {
			if _, again, ok := a.nextPacket(&sent); !ok {
				break
			} else if !again {
				t.Error("a repetition counts as new")
			}
		}
	}
	if !now.Equal(end) {
		t.Errorf("down %v too late", now.Sub(end))
	}
}

// Over a medium whose round trip is long, or becomes so, nothing is sent again for
// long because of that.
func TestARQTrip(t *testing.T) {
	var a arq
	a.init(Window)
	now := time.Unix(100, 0)
	var sent uint32
	for _, trip := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		repeated := 0
		for i := range 100 {
			a.pushMessage([]byte{1}, now)
			for now = now.Add(trip); ; {
				for {
					_, again, ok := a.nextPacket(&sent)
					if !ok {
						break
					}
					if again && i >= 10 {
						repeated++
					}
				}
				if !a.timer.Before(now) {
					break
				}
				a.retryOldest(a.timer, time.Hour)
			}
			a.receivePacket(packet{ack: a.next}, now)
			if a.hasOutstanding() {
				t.Fatal("outstanding")
			}
		}
		if repeated > 0 {
			t.Errorf("%v: %d packets of 90 sent again", trip, repeated)
		}
	}
}

// What a peer cannot have acknowledged moves nothing.
func TestARQLies(t *testing.T) {
	var a arq
	a.init(4)
	now := time.Unix(100, 0)
	for i := range 3 {
		a.pushMessage([]byte{byte(i)}, now)
	}
	before := a.base
	for _, ack := range []uint32{a.next + 1, a.base - 1, a.next + 1<<31} {
		a.receivePacket(packet{ack: ack, flags: flagNack}, now)
		if a.base != before {
			t.Errorf("ack %d: base %d", ack, a.base)
		}
	}
}

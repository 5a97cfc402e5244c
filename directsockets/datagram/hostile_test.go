package datagram

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"exnet/internal/netns/netnstest"
	"exnet/internal/shm"
)

// TestHostileSender has a sender write what it likes into its control block and its ring: the
// receiver gets datagrams of at most MaxLen bytes or ErrCorrupt, and touches nothing else.
func TestHostileSender(t *testing.T) {
	netnstest.CheckFDs(t)
	r := rand.New(rand.NewPCG(3, 4))
	corrupt, taken := 0, 0
	buf := make([]byte, MaxLen)
	for range 3000 {
		f := newFlow(t, minRing, 0)
		f.open(t)
		mem := f.seg.Exposed()
		for range 20 {
			f.tx.Send(buf[:r.IntN(300)], Meta{})
			for range r.IntN(4) {
				at := txOff + r.IntN(512)
				if r.IntN(3) > 0 {
					at = ringOff + int(f.rx.at%f.rx.size) + r.IntN(2)*r.IntN(64)
				}
				if at &^= 7; at+8 > len(mem) {
					continue
				}
				word := r.Uint64()
				if r.IntN(2) == 0 { // nearly a record
					word = word&^(0x7f<<17) | uint64(1+r.IntN(3))<<tagShift&^(0xfc<<tagShift)
				}
				binary.LittleEndian.PutUint64(mem[at:], word)
			}
			rec, ok, err := f.rx.Next()
			if errors.Is(err, ErrCorrupt) {
				corrupt++
				if !f.rx.Ended() || f.rx.Ready() {
					t.Fatal("the flow goes on")
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				taken++
				if rec.Len < 0 || rec.Len > MaxLen {
					t.Fatalf("%+v", rec)
				}
				f.rx.CopyTo(buf[:rec.Len])
				f.rx.Consume()
			}
			f.rx.Busy()
			f.rx.Kernel()
			f.rx.Over()
		}
		f.tx.Close()
		f.rx.Close()
	}
	if corrupt < 100 || taken < 100 {
		t.Errorf("%d breaches, %d datagrams", corrupt, taken)
	}
}

// TestHostileReceiver has a receiver write what it likes into its control block: the sender sends
// by the kernel, drops, or ends the flow, and writes to nothing but the ring.
func TestHostileReceiver(t *testing.T) {
	netnstest.CheckFDs(t)
	r := rand.New(rand.NewPCG(5, 6))
	buf := make([]byte, MaxLen)
	seen := map[Outcome]int{}
	for range 3000 {
		f := newFlow(t, minRing, 0)
		f.open(t)
		mem := f.peer.Exposed()
		for range 20 {
			at := rxOff + []int{consumedOff, armedOff, takenOff, dryOff, boundOff, rxFlagsOff &^ 7}[r.IntN(6)]
			value := []uint64{0, 1, f.tx.put, f.tx.put - 64, f.tx.put + 64, f.tx.kernel, r.Uint64(), 1 << 63}[r.IntN(8)]
			binary.LittleEndian.PutUint64(mem[at:], value)
			o := f.tx.Send(buf[:r.IntN(3000)], Meta{})
			seen[o]++
			switch o {
			case ByKernel:
				f.tx.Sent(1, 0)
			case NoRoom:
				f.tx.Drop()
			}
			f.tx.Consumed()
			if f.tx.put-f.tx.consumed > f.tx.size {
				t.Fatalf("%d bytes in a ring of %d", f.tx.put-f.tx.consumed, f.tx.size)
			}
		}
		f.tx.Close()
		f.rx.Close()
	}
	for _, o := range []Outcome{Published, ByKernel, NoRoom, Gone} {
		if seen[o] == 0 {
			t.Errorf("outcome %v never came", o)
		}
	}
}

// TestOldStamps has a sender say that all of its datagrams are the oldest: it is believed for the
// ring that was there, and not for what it could not have written yet.
func TestOldStamps(t *testing.T) {
	f := newFlow(t, minRing, 0)
	f.open(t)
	mem := f.seg.Exposed()
	var laps []uint64
	for i := range 4 * minRing / align {
		if i%(minRing/align) == 0 {
			laps = append(laps, shm.Ticks())
		}
		off := f.rx.at % f.rx.size
		if got := f.tx.Send([]byte("old"), Meta{}); got != Published {
			t.Fatal(i, got)
		}
		binary.LittleEndian.PutUint64(mem[ringOff+off+8:], 0)
		rec, ok, err := f.rx.Next()
		if !ok || err != nil {
			t.Fatal(i, ok, err)
		}
		if n := len(laps); n > 2 && rec.Stamp < laps[n-2] {
			t.Fatalf("datagram %d: %d, a lap began at %d", i, rec.Stamp, laps[n-2])
		}
		f.rx.Consume()
	}
}

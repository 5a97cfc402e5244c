package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"exnet/directsockets/segment"
	"exnet/fabric/velo"
)

// words are the bytes of one direction of a connection: its number and the word's, 8 bytes each.
type words struct {
	of   uint64
	next uint64
	part []byte // a word that has come in part
}

// fill fills p, from any byte of a word on, and counts on.
func (w *words) fill(p []byte) {
	for i := range p {
		if len(w.part) == 0 {
			w.part = binary.LittleEndian.AppendUint64(nil, w.of<<48|w.next)
			w.next++
		}
		p[i] = w.part[0]
		w.part = w.part[1:]
	}
}

// check checks that p is what comes next.
func (w *words) check(p []byte) error {
	for w.part = append(w.part, p...); len(w.part) >= 8; w.part = w.part[8:] {
		if got := binary.LittleEndian.Uint64(w.part); got != w.of<<48|w.next {
			return fmt.Errorf("direction %d: word %d of direction %d instead of word %d", w.of, got&(1<<48-1), got>>48, w.next)
		}
		w.next++
	}
	return nil
}

// Many connections send numbered words both ways at a time, and each gets its own, all of them and
// in order, with few credits, so that every step of a channel is refused at some time.
func TestNumberedWords(t *testing.T) {
	for _, credits := range []int{2, 9, 512} {
		t.Run(fmt.Sprintf("%d credits", credits), func(t *testing.T) {
			hosts := numberedWords(t, 16, 2<<20, func(c *Config) { c.Mailbox = velo.Config{Slots: 4096, Credits: credits} })
			for i, h := range hosts {
				if s := h.engine.Stats(); s.NoCredit == 0 && credits < 512 {
					t.Errorf("host %d: %+v", i+1, s)
				}
			}
		})
	}
}

// PUTs that a peer has no room for, because it is slow to look at those before, are repeated.
func TestOverrun(t *testing.T) {
	for _, c := range []struct {
		what        string
		size, count int
	}{{"batches", 100, 20}, {"data in the ring", 64 << 10, 1}} {
		t.Run(c.what, func(t *testing.T) {
			hosts, client, server := pair(t, segment.Config{Slots: 1024, Ring: 4 << 20}, func(c *Config) { alone(c); c.notifications = 4 })
			exchange := func() {
				if err := send(t, client, pattern(1, 70_000), true); err != nil {
					t.Fatal(err)
				}
				if got, err := receive(t, server, 70_000, true); err != nil || !bytes.Equal(got, pattern(1, 70_000)) {
					t.Error(err)
				}
			}
			exchange() // the peer has said where its batches go
			goOn := hosts[1].pause(t)
			defer goOn()
			var want []byte
			until(t, "an overrun", func() bool {
				for range c.count {
					p := pattern(uint64(len(want)), c.size)
					n, err := client.Send(p)
					if err != nil && !errors.Is(err, segment.ErrAgain) {
						t.Fatal(err)
					}
					want = append(want, p[:n]...)
				}
				return hosts[0].engine.Stats().Overruns > 0
			})
			goOn()
			got, err := receive(t, server, len(want), true)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v, %d bytes, equal %v", err, len(want), bytes.Equal(got, want))
			}
			if s := hosts[0].engine.Stats(); s.Lost != 0 || s.Breaches != 0 || s.PutsFailed != 0 {
				t.Errorf("%+v", s)
			}
			exchange()
		})
	}
	numberedWords(t, 16, 1<<20, func(c *Config) { c.notifications = 4 })
}

// numberedWords has n connections between two hosts send so many bytes each way.
func numberedWords(t *testing.T, n, bytes int, change func(*Config)) []*host {
	t.Helper()
	hosts := newHosts(t, 2, change)
	var all sync.WaitGroup
	for i := range n {
		client := hosts[0].call(t, hosts[1], segment.Config{Slots: 64, Ring: 64 << 10})
		server := hosts[1].answer(t)
		until(t, "attached", client.Attached)
		for way, ends := range [][2]*segment.End{{client, server}, {server, client}} {
			of := uint64(2*i + way + 1)
			all.Go(func() { sendWords(t, ends[0], of, bytes) })
			all.Go(func() { receiveWords(t, ends[1], of, bytes) })
		}
	}
	all.Wait()
	for i, h := range hosts {
		s := h.engine.Stats()
		if s.Batches == 0 || s.Breaches != 0 || s.Lost != 0 || s.Strays != 0 {
			t.Errorf("host %d: %+v", i+1, s)
		}
	}
	return hosts
}

func sendWords(t *testing.T, e *segment.End, of uint64, bytes int) {
	r, w := rand.New(rand.NewPCG(of, 1)), words{of: of}
	until(t, "both ends attached", e.Attached)
	if err := e.Promote(0); err != nil {
		t.Error(err)
		return
	}
	most := []int{8, 120, 2000, 40_000}
	for bytes > 0 {
		p := make([]byte, min(bytes, 1+r.IntN(most[r.IntN(len(most))])))
		w.fill(p)
		bytes -= len(p)
		if err := send(t, e, p, false); err != nil {
			t.Errorf("direction %d: %v", of, err)
			return
		}
	}
}

func receiveWords(t *testing.T, e *segment.End, of uint64, bytes int) {
	w, p := words{of: of}, make([]byte, 10_000)
	until(t, "promoted", func() bool { _, ok := e.PromotedAt(); return ok })
	for got := 0; got < bytes; {
		n, err := e.Recv(p)
		got += n
		if wrong := w.check(p[:n]); wrong != nil {
			t.Error(wrong)
			return
		}
		if errors.Is(err, segment.ErrAgain) {
			wait(t, e, true, false)
		} else if err != nil {
			t.Errorf("direction %d: %v after %d bytes", of, err, got)
			return
		}
	}
}

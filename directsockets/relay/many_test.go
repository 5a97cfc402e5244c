package relay

import (
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
			numberedWords(t, 16, 2<<20, credits)
		})
	}
}

// numberedWords has n connections send so many bytes each way.
func numberedWords(t *testing.T, n, bytes, credits int) {
	t.Helper()
	hosts := newHosts(t, 2, func(c *Config) { c.Mailbox = velo.Config{Slots: 4096, Credits: credits} })
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
		if s.Batches == 0 || s.NoCredit == 0 && credits < 512 || s.Breaches != 0 || s.Lost != 0 || s.Strays != 0 {
			t.Errorf("host %d: %+v", i+1, s)
		}
	}
}

func sendWords(t *testing.T, e *segment.End, of uint64, bytes int) {
	r, w := rand.New(rand.NewPCG(of, 1)), words{of: of}
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

package segment

import (
	"bytes"
	"testing"

	"exnet/internal/shm"
)

// Eight slow copies in a row have the next ones go past the caches, until one through
// them is fast.
func TestWay(t *testing.T) {
	const n = 64 << 10
	fast, slow := uint64(n/2), uint64(n/2+1)
	var w way
	for range 3 {
		for range slowMost - 1 {
			w.noteCopy(slow, n)
		}
		w.noteCopy(fast, n)
		if w.past {
			t.Fatal("past the caches although one of the last copies was fast")
		}
	}
	for i := 0; !w.past; i++ {
		if i == slowMost {
			t.Fatalf("%d slow copies change nothing", i)
		}
		w.noteCopy(slow, n)
	}
	if w.left = 0; w.slow != slowMost {
		t.Error("slow", w.slow)
	}
	if w.noteCopy(slow, n); !w.past || w.left != wayAgain {
		t.Errorf("another slow one: %+v", w)
	}
	if w.noteCopy(fast, n); w.past {
		t.Error("past the caches after a fast copy")
	}
	client, _ := promoted(t, Config{})
	mem, whole, short := client.tx.mem.Part(0, n), make([]byte, n), make([]byte, wayLeast-1)
	begun := way{past: true, slow: slowMost, left: 100}
	w2 := begun
	w2.copyIn(mem, whole, true)
	w2.copyIn(mem, short, false)
	if w2 != begun {
		t.Errorf("on one CPU, and few bytes: %+v", w2)
	}
	if w2.copyIn(mem, whole, false); w2.left != 100-n {
		t.Errorf("many bytes, on two: %+v", w2)
	}
	if w.noteCopy(0, n); w.past || w.slow != slowMost/4 {
		t.Errorf("after two: %+v", w)
	}
}

// What goes past the caches arrives, and one copy after that is timed.
func TestPast(t *testing.T) {
	client, server := promoted(t, Config{Ring: 256 << 10})
	w := &client.tx.way
	out, in := make([]byte, 100_003), make([]byte, 100_003)
	for round := range 40 {
		for i := range out {
			out[i] = byte(i*7 + i>>8 + round)
		}
		*w = way{past: true, slow: slowMost, left: (round % 3) * (wayLeast + 1)}
		before := w.left
		for sent, got := 0, 0; got < len(out); {
			server.own.cpu.Store(0) // as if it were on another CPU than the client
			k, err := client.Send(out[sent:])
			if err != nil && err != ErrAgain {
				t.Fatal(err)
			}
			sent += k
			k, err = server.Recv(in[got:])
			if err != nil && err != ErrAgain {
				t.Fatal(err)
			}
			got += k
		}
		if !bytes.Equal(in, out) {
			t.Fatal("other bytes arrive")
		}
		if shm.Ticks() != 0 && *w == (way{past: true, slow: slowMost, left: before}) {
			t.Errorf("round %d: nothing was counted: %+v", round, *w)
		}
	}
}

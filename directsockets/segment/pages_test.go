package segment

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// What is sent slowly does not fill the queues, and gives back what a burst has filled.
func TestPages(t *testing.T) {
	if shm.Ticks() == 0 {
		t.Skip("no clock that costs nothing")
	}
	for _, slots := range []int{16, 128, 4096} {
		client, server := promoted(t, Config{Slots: slots})
		allocated := func() int64 {
			var st unix.Stat_t
			if err := unix.Fstat(client.seg.Fd(), &st); err != nil {
				t.Fatal(err)
			}
			return st.Blocks * 512
		}
		for round, how := range []pace{burst, slowly, crowded, burst, slowly} {
			passes(t, client, server, how)
			passes(t, server, client, how)
			// The header, and of each queue the page in use and perhaps, just left, the one before.
			const few = 5 * shm.PageSize
			most := int64(2*shm.PageSize + 2*slots*128)
			if how == slowly && slots > 16 {
				most = few
			}
			got := allocated()
			if got > most {
				t.Errorf("%d slots, round %d: %d bytes, at most %d expected", slots, round, got, most)
			}
			if how == crowded && slots > 16 && got <= few {
				t.Errorf("%d slots, crowded: %d bytes: pages were given back", slots, got)
			}
		}
	}
}

// pace is how messages pass: in a burst, or as if a page of them took a millisecond. Crowded: so
// do those of many other connections.
type pace int

const (
	burst pace = iota
	slowly
	crowded
)

// passes sends messages one way.
func passes(t *testing.T, from, to *End, how pace) {
	t.Helper()
	defer busy.Store(0)
	got := make([]byte, defaultThreshold)
	for range 300 {
		p := make([]byte, 1+rand.IntN(defaultThreshold))
		for i := range p {
			p[i] = byte(rand.Int())
		}
		from.tx.pages.turned = 0
		busy.Store(0)
		switch how {
		case burst:
			from.tx.pages.turned = shm.Ticks() + 1<<40
		case crowded:
			busy.Store(int64(shm.Ticks()) + 1<<40)
		}
		if n, err := from.Send(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		n := 0
		for n < len(p) {
			k, err := to.Recv(got[n:])
			if err != nil {
				t.Fatal(n, err)
			}
			n += k
		}
		if _, err := to.Recv(got[n:]); n < len(got) && err != ErrAgain {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:n], p) {
			t.Fatal("other bytes")
		}
	}
}

// Giving back costs little, whatever a process sends on however many connections.
func TestMayGive(t *testing.T) {
	defer busy.Store(0)
	const start, span = 1 << 50, 1 << 28 // about 0.1 s, 32 times 3 ms
	for _, c := range []struct{ every, least, most int }{
		{1 << 24, 16, 16},
		{1 << 22, 20, 32},
		{1 << 20, 0, 1},
		{1 << 17, 0, 1},
	} {
		busy.Store(0)
		n := 0
		for at := c.every; at <= span; at += c.every {
			if mayGive(int64(start+at), true) {
				n++
			}
		}
		if n < c.least || n > c.most {
			t.Errorf("a page in %d ticks: given back %d times, %d to %d expected", c.every, n, c.least, c.most)
		}
	}
	if mayGive(start+span+1<<24, true) {
		t.Error("given back at once after a burst")
	}
	if !mayGive(start+2*span, true) {
		t.Error("not given back after a burst")
	}
	if mayGive(start+4*span, false) {
		t.Error("given back by a connection that is not quiet")
	}
}

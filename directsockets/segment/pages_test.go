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
		for round := range 4 {
			quietly := round == 1
			passes(t, client, server, quietly)
			passes(t, server, client, quietly)
			// The header, and of each queue the page in use and perhaps, just left, the one before.
			most := int64(2*shm.PageSize + 2*slots*128)
			if quietly && slots > 16 {
				most = 5 * shm.PageSize
			}
			if got := allocated(); got > most {
				t.Errorf("%d slots, round %d: %d bytes, at most %d expected", slots, round, got, most)
			}
		}
	}
}

// passes sends messages one way; quietly: as if a page of them took a millisecond.
func passes(t *testing.T, from, to *End, quietly bool) {
	t.Helper()
	got := make([]byte, defaultThreshold)
	for range 300 {
		p := make([]byte, 1+rand.IntN(defaultThreshold))
		for i := range p {
			p[i] = byte(rand.Int())
		}
		from.tx.pages.turned = shm.Ticks() + 1<<40
		if quietly {
			from.tx.pages.turned = 0
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

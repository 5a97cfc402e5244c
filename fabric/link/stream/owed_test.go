package stream

import (
	"syscall"
	"testing"

	"exnet/fabric/internal/sealed"
	"exnet/fabric/link"
)

// bucket is a socket that takes all or, full, nothing.
type bucket struct{ full bool }

func (b *bucket) Send(p []byte) (int, syscall.Errno) {
	if b.full {
		return 0, syscall.EAGAIN
	}
	return len(p), 0
}

func (*bucket) Receive([]byte, []byte) (int, syscall.Errno) { return 0, syscall.EAGAIN }

// The end of what was encrypted goes when the socket takes it. Then there is nothing to do, and the
// driver waits.
func TestOwed(t *testing.T) {
	for _, conns := range []int{1, 2} {
		l := &Link{events: events{set: -1, event: -1}}
		l.out.init()
		var owes []*bucket
		for i := range conns {
			a, _ := tcp(t)
			under := sealed.Under(a).(*sealed.Conn)
			b := &bucket{full: true}
			under.Take(b)
			owes = append(owes, b)
			c := &conn{messages: i == 0, data: i > 0 || conns == 1, fd: -1, crypt: &crypt{under: under}}
			l.conns = append(l.conns, c)
			if _, err := under.Write(make([]byte, 1000)); err != nil { // of a batch that is empty now
				t.Fatal(err)
			}
			l.noteStuck(c)
		}
		l.pumping.Lock() // somebody else receives
		s := served{l}
		arms := func(when string) {
			t.Helper()
			for _, rung := range []bool{true, false} {
				if _, ok := s.Serve(rung); !ok {
					t.Fatal("down")
				}
			}
			if d := s.Arm(); d != link.Forever {
				t.Errorf("%d connections, %s: the driver waits for %v", conns, when, d)
			}
		}
		arms("full")
		for _, b := range owes {
			b.full = false
		}
		arms("when they take all")
		for i, c := range l.conns {
			if n := c.crypt.under.Pending(); n > 0 || c.partial.Load() || c.armed.Load() || c.blocked.Load() {
				t.Errorf("connection %d: %d bytes are left", i, n)
			}
		}
		l.pumping.Unlock()
	}
}

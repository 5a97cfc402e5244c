package segment

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/foreigntest"
)

// A node that dies says nothing: its program gets a reset, and not what the shadow would
// say. Before the server's program has taken the offer it is none that was taken.
func TestRelayDies(t *testing.T) {
	for _, attached := range []bool{true, false} {
		c, s := pair(t, Config{})
		fd, err := unix.FcntlInt(uintptr(s.bell), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewRelay(s.seg, Server, fd, false)
		if err != nil {
			t.Fatal(err)
		}
		if attached {
			if err := r.Attach(); err != nil || !c.Attached() {
				t.Fatal(err)
			}
			if err := c.Promote(0); err != nil {
				t.Fatal(err)
			}
		}
		if c.ZCopy() {
			t.Error("a node has ZCOPY")
		}
		for _, f := range []*End{s, r.e} { // without a word
			f.bell = -1
			_ = f.file.Close()
		}
		c.Awake()
		if err := c.Err(); !errors.Is(err, ErrReset) || !c.Lost() {
			t.Errorf("%v", err)
		}
		if _, err := c.Send([]byte{1}); attached && !errors.Is(err, ErrReset) {
			t.Errorf("send: %v", err)
		}
	}
}

// A program that changes its messages as soon as they were read changes nothing of what is
// relayed. A relay that reads one again is found.
func TestRelayReadsOnce(t *testing.T) {
	for _, planted := range []bool{false, true} {
		c, near := pair(t, Config{})
		r, err := NewRelay(near.seg, Server, -1, false)
		if err == nil {
			err = r.Attach()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Promote(3); err != nil {
			t.Fatal(err)
		}
		want := pattern(400, 3)
		if err := send(c, want); err != nil {
			t.Fatal(err)
		}
		reads := foreigntest.Watch(t, foreigntest.Flip)
		var got []byte
		var m Message
		for {
			ok, err := r.Take(&m)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if planted && m.Tag == TagVELO {
				r.e.rx.count-- // it looks at the message, and takes it then
				r.out.count--
				if _, err := r.Take(&m); err != nil {
					t.Fatal(err)
				}
			}
			if m.Tag != TagPromote {
				got = append(got, m.Payload()...)
			}
		}
		reads.Stop()
		if read, again := reads.Bytes(); read < len(want) || again > 0 != planted || bytes.Equal(got, want) == planted {
			t.Errorf("planted %v: %d bytes read, %d of them again, relayed as sent: %v", planted, read, again, bytes.Equal(got, want))
		}
	}
}

// What a Relay takes out of one segment and puts into another is what was sent, and what it
// gives back is what was consumed.
func TestRelayMoves(t *testing.T) {
	c, near := pair(t, Config{Slots: 16})
	far, s := pair(t, Config{Slots: 16})
	a, err := NewRelay(near.seg, Server, -1, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewRelay(far.seg, Client, -1, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Attach(), s.Attach()); err != nil || !b.Attached() {
		t.Fatal(err)
	}
	if !a.Silent() {
		t.Error("has spoken")
	}
	if c.SetClass(10); a.Class() != 10 || b.Class() != 0 {
		t.Errorf("classes %d and %d, want 10 and 0", a.Class(), b.Class())
	}
	if c.own.class.Store(1<<16 | 63); a.Class() != 63 {
		t.Errorf("class %d", a.Class())
	}
	if err := c.Promote(3); err != nil {
		t.Fatal(err)
	}
	if a.Silent() {
		t.Error("has not spoken")
	}
	var total, got int
	for round := range 100 {
		if n, err := c.Send(make([]byte, 1+round*37)); err == nil {
			total += n
		} else if err != ErrAgain {
			t.Fatal(err)
		}
		var m Message
		for {
			ok, err := a.Take(&m)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if _, err := b.Put(m.Tag, m.Payload()); err != nil {
				t.Fatal(err)
			}
		}
		b.Tell()
		if n, ok := s.PromotedAt(); n != 3 || !ok {
			t.Fatal(n, ok)
		}
		k, err := s.Recv(make([]byte, 2000))
		if err != nil && err != ErrAgain {
			t.Fatal(err)
		}
		got += k
		consumed, freed, err := b.Returned()
		if err == nil {
			err = a.GiveBack(consumed, freed)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for {
		k, err := s.Recv(make([]byte, 2000))
		if err != nil {
			break
		}
		got += k
	}
	if got != total || total < 50_000 {
		t.Errorf("%d bytes sent, %d received", total, got)
	}
}

// newParting returns a program's end, which is direct, and its Relay.
func newParting(t *testing.T) (*End, *Relay) {
	t.Helper()
	c, near := pair(t, Config{Slots: 16})
	a, err := NewRelay(near.seg, Server, -1, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Attach(), c.Promote(0)); err != nil {
		t.Fatal(err)
	}
	return c, a
}

// A Relay whose program is to go back to TCP takes again, after a session was lost, what it had
// taken before, and nothing that the program sends on the shadow.
func TestRelayRewindParted(t *testing.T) {
	c, a := newParting(t)
	send := func(text string) {
		t.Helper()
		if n, err := c.Send([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	send("carried")
	var m Message
	for ok := true; ok; {
		var err error
		if ok, err = a.Take(&m); err != nil {
			t.Fatal(err)
		}
	}
	send("returned")
	if _, done := a.Part(); done {
		t.Fatal("the program has not returned yet")
	}
	var back []byte
	if err := c.ReturnToTCP(func(p []byte) (int, error) { back = append(back, p...); return len(p), nil }); err != nil || string(back) != "returned" {
		t.Fatalf("%q goes on the shadow: %v", back, err)
	}
	if _, err := a.Rewind(1, 0); err != nil {
		t.Fatal(err)
	}
	p, n, _, err := a.Pack(make([]byte, 0, 4096), 16, 0)
	if err != nil || n != 1 || string(p[PackHead:]) != "carried" {
		t.Errorf("%d messages are taken: %q, %v", n, p, err)
	}
}

// A program that ends its direction while its node parts it does not return: its node carries the
// end.
func TestRelayEndParted(t *testing.T) {
	for _, end := range []func(e *End) error{(*End).Shutdown, (*End).Demote} {
		c, a := newParting(t)
		var m Message
		take := func(want bool) {
			t.Helper()
			if ok, err := a.Take(&m); ok != want || err != nil {
				t.Fatal(ok, err)
			}
		}
		take(true)
		take(false)
		if err := end(c); err != nil {
			t.Fatal(err)
		}
		if _, done := a.Part(); done || c.FallenBack() {
			t.Fatalf("parted: %v, the program returns: %v", done, c.FallenBack())
		}
		take(true)
		take(false)
		if say, done := a.Part(); !done || say != MarkStands {
			t.Errorf("after message %d: parted %v, says %x", m.Tag, done, say)
		}
		if err := a.GiveBack(2, 0); err != nil || a.e.own.consumed.Load() != 1 {
			t.Errorf("message %d counts as consumed: %v", m.Tag, err)
		}
	}
}

package segment

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func newRegion(tb testing.TB, size int) *Region {
	tb.Helper()
	r, err := NewRegion(size)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

func take(t *testing.T, e *End, want []byte) {
	t.Helper()
	buf := make([]byte, len(want)+1)
	n, err := e.Recv(buf)
	if err != nil || !bytes.Equal(buf[:n], want) {
		t.Fatalf("%d bytes of %d, %v", n, len(want), err)
	}
}

// GET: the receiver takes the bytes from the sender's region, in order with others.
func TestSendRegion(t *testing.T) {
	c, s := promoted(t, Config{})
	r := newRegion(t, 100000)
	copy(r.Bytes(), pattern(100000, 3))
	if _, err := c.Send([]byte("before")); err != nil {
		t.Fatal(err)
	}
	ticket, err := c.SendRegion(r, 10, 90000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send([]byte("behind")); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.Taken(ticket); ok || err != nil {
		t.Fatal("taken at once", err)
	}
	if c.ArmTaken(ticket) {
		t.Fatal("ready")
	}
	if got := s.Readable(); got != 90012 {
		t.Errorf("%d bytes can be read", got)
	}
	take(t, s, append(append([]byte("before"), pattern(100000, 3)[10:90010]...), "behind"...))
	if ok, err := c.Taken(ticket); !ok || err != nil {
		t.Error("not taken", err)
	}
	if bell(t, c) == 0 {
		t.Error("the sender was not woken")
	}
	// A second one of the same region; piece by piece; lent.
	ticket, err = c.SendRegion(r, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Next()
	if err != nil || !bytes.Equal(b.AppendTo(nil), r.Bytes()[:1000]) {
		t.Fatal(b.Len(), err)
	}
	s.Release(999)
	if ok, _ := c.Taken(ticket); ok {
		t.Error("taken before all of it was")
	}
	s.Release(1)
	if ok, _ := c.Taken(ticket); !ok {
		t.Error("not taken")
	}
	if c.count[ZCopySent].Load() != 91000 || s.count[ZCopyReceived].Load() != 91000 {
		t.Error("counters", c.count[ZCopySent].Load(), s.count[ZCopyReceived].Load())
	}
}

// bell is how many bytes wait in the doorbell of e.
func bell(t *testing.T, e *End) int {
	t.Helper()
	n, err := unix.IoctlGetInt(e.bell, unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSendRegionChecks(t *testing.T) {
	c, s := promoted(t, Config{Slots: 16})
	r := newRegion(t, 4096)
	for _, bad := range [][2]int{{0, 0}, {-1, 5}, {0, 4097}, {4096, 1}, {4000, 97}, {0, -1}} {
		if _, err := c.SendRegion(r, bad[0], bad[1]); !errors.Is(err, ErrConfig) {
			t.Error(bad, err)
		}
	}
	s.own.flags.Store(0) // a peer without zero copy
	if _, err := c.SendRegion(r, 0, 1); err != ErrNoZCopy {
		t.Error(err)
	}
	s.own.flags.Store(flagZCopy)
	for n := 0; ; n++ {
		if _, err := c.SendRegion(newRegion(t, 1), 0, 1); err == ErrRegions {
			if n != maxRegions {
				t.Error("regions:", n)
			}
			break
		} else if err != nil {
			t.Fatal(n, err)
		}
		take(t, s, []byte{0})
	}
}

// A number stands for one region: a peer that sends another one by the same number breaks the
// rules.
func TestRegionTwice(t *testing.T) {
	c, s := promoted(t, Config{})
	for range 2 {
		c.tx.regions = outRegions{}
		if _, err := c.SendRegion(newRegion(t, 1), 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	p := make([]byte, 2)
	if n, err := s.Recv(p); n != 1 || err != nil {
		t.Errorf("of the first: %d, %v", n, err)
	}
	if n, err := s.Recv(p); n != 0 || err != ErrCorrupt {
		t.Errorf("of the second: %d, %v", n, err)
	}
}

// What was sent from a region, and not taken, is returned to TCP like the rest.
func TestSendRegionFallenBack(t *testing.T) {
	c, s := promoted(t, Config{})
	r := newRegion(t, 5000)
	copy(r.Bytes(), pattern(5000, 1))
	ticket, err := c.SendRegion(r, 0, 5000)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := s.Recv(buf); n != 100 || err != nil {
		t.Fatal(n, err)
	}
	if err := s.FallBack(); err != nil {
		t.Fatal(err)
	}
	if ok, err := c.Taken(ticket); ok || err != ErrFellBack {
		t.Fatal(ok, err)
	}
	var shadow bytes.Buffer
	if err := c.ReturnToTCP(shadow.Write); err != nil || !bytes.Equal(shadow.Bytes(), pattern(5000, 1)[100:]) {
		t.Fatal(shadow.Len(), err)
	}
}

// sinks returns both ends, and a region of the server's that the client has mapped.
func sinks(t *testing.T) (c, s *End, r *Region, number uint32) {
	t.Helper()
	c, s = promoted(t, Config{})
	r = newRegion(t, 1<<20)
	number, err := s.Share(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(make([]byte, 1)); err != ErrAgain { // reads REGION
		t.Fatal(err)
	}
	return c, s, r, number
}

// PUT into the receiver's own buffer.
func TestSink(t *testing.T) {
	c, s, r, number := sinks(t)
	if err := s.OfferSink(r, number, 4096, 100000); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RecvSink(); err != ErrAgain {
		t.Fatal(err)
	}
	if n, err := c.Send(pattern(120000, 5)); n != 120000 || err != nil {
		t.Fatal(n, err)
	}
	n, err := s.RecvSink()
	if n != 100000 || err != nil || !bytes.Equal(r.Bytes()[4096:][:n], pattern(n, 5)) {
		t.Fatal(n, err)
	}
	if _, err := s.RecvSink(); err != ErrNoSink {
		t.Error(err)
	}
	take(t, s, pattern(120000, 5)[n:])
	if got := c.count[ZCopySent].Load(); got != 100000 {
		t.Error("counted", got)
	}

	// A small send does not use it; then it is over, and there can be another.
	if err := s.OfferSink(r, number, 0, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send([]byte("small")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RecvSink(); err != ErrNoSink {
		t.Fatal(err)
	}
	take(t, s, []byte("small"))
	if _, err := c.Send(pattern(1000, 1)); err != nil {
		t.Fatal(err)
	}
	take(t, s, pattern(1000, 1))

	// Recv takes it from there, too, and Withdraw ends it.
	if err := s.OfferSink(r, number, 0, 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(pattern(900, 1)); err != nil {
		t.Fatal(err)
	}
	if s.WithdrawSink() {
		t.Error("withdrawn when it was full")
	}
	take(t, s, pattern(900, 1))
	if err := s.OfferSink(r, number, 0, 1000); err != nil {
		t.Fatal(err)
	}
	if !s.WithdrawSink() {
		t.Error("not withdrawn")
	}
	if _, err := c.Send(pattern(900, 2)); err != nil {
		t.Fatal(err)
	}
	take(t, s, pattern(900, 2))
	if err := s.OfferSink(r, number, 0, 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.OfferSink(r, number, 0, 1000); err != ErrAgain {
		t.Error("two sinks", err)
	}
	if err := s.FallBack(); err != nil {
		t.Error(err)
	}
}

func TestSinkClaimed(t *testing.T) {
	c, s, r, number := sinks(t)
	if err := s.OfferSink(r, number, 0, 1000); err != nil {
		t.Fatal(err)
	}
	c.own.claimSeq.Store(1) // the peer is in the middle of its copy
	if s.WithdrawSink() {
		t.Fatal("withdrawn")
	}
	if err := s.FallBack(); err != ErrAgain {
		t.Fatal(err)
	}
	s.rx.sink.asked = s.rx.sink.asked.Add(-sinkWait / 2)
	if s.WithdrawSink() || s.Err() != nil {
		t.Fatal("withdrawn")
	}
	c.own.claimSeq.Store(0) // it has seen the withdrawal
	if !s.WithdrawSink() {
		t.Fatal("not withdrawn")
	}
	// A sender that sees it withdrawn after its claim takes the claim back.
	if n, err := c.sendSink(pattern(600, 1)); n != 0 || err != nil || c.own.claimSeq.Load() != 0 {
		t.Fatal(n, err)
	}
}

// A peer that claims a sink and does nothing holds nobody up for ever.
func TestSinkClaimedForEver(t *testing.T) {
	c, s, r, number := sinks(t)
	if err := s.OfferSink(r, number, 0, 1000); err != nil {
		t.Fatal(err)
	}
	c.own.claimSeq.Store(1)
	if s.WithdrawSink() {
		t.Fatal("withdrawn")
	}
	s.rx.sink.asked = s.rx.sink.asked.Add(-sinkWait)
	if !s.WithdrawSink() || s.Err() != ErrCorrupt {
		t.Fatal("not given up", s.Err())
	}
}

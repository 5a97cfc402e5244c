package directsockets

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/segment"
)

// hasty is a peer that promotes, sends and closes between two looks at it.
type hasty struct {
	looks int
	when  int // the look before which it does so
}

func (h *hasty) done() bool {
	h.looks++
	return h.looks > h.when
}

func (h *hasty) Err() error {
	if h.done() {
		return segment.ErrClosed
	}
	return nil
}

func (h *hasty) PromotedAt() (uint64, bool) { return 7, h.done() }

// A peer that has closed is not gone as long as it has left something in the segment,
// whenever it did so.
func TestPromotionBeforeEnd(t *testing.T) {
	for when := range 3 {
		if at, ok, err := readPromotion(&hasty{when: when}); !ok && err != nil || ok && at != 7 {
			t.Errorf("before look %d: promoted %v, %v", when, ok, err)
		}
	}
}

// shadowOf returns a Conn whose shadow gives text, and has ended then.
func shadowOf(t *testing.T, text string) *Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	shadow, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(peer, text); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	c, err := NewConn(shadow, false, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A shadow that ends before it has given what comes before the segment's bytes is no end of file.
func TestShadowEndsEarly(t *testing.T) {
	c := shadowOf(t, "abc")
	c.rx.phase, c.rx.promoted = rxCatchUp, 10
	if got, err := io.ReadAll(c); string(got) != "abc" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", got, err)
	}
}

// An error of the shadow that comes too early is told after the segment's bytes.
func TestErrorComesEarly(t *testing.T) {
	c := shadowOf(t, "")
	c.rx.shadow, c.rx.promoted = 5, 5
	if n, err := c.splitAtPromotion(nil, 0, syscall.ECONNRESET); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	c.rx.phase = rxBack
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the segment: %d, %v", n, err)
	}
}

// A timer that fires after the deadline was moved ends no call.
func TestTimerOfMovedDeadline(t *testing.T) {
	c := shadowOf(t, "abc")
	if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	c.expireHalf(&c.rx.half)
	if got, err := io.ReadAll(c); string(got) != "abc" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

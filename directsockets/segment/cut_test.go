package segment

import (
	"errors"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A network that is cut ends data, not what is under way: the sender demotes, and the receiver
// reads up to there.
func TestCut(t *testing.T) {
	c, s := promoted(t, Config{})
	if n, err := c.Send([]byte("before")); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	fd, nonce := c.seg.Fd(), c.seg.Info().Nonce
	if _, _, err := Cut(fd, func(i Info) bool { return i.Nonce != nonce }); err == nil {
		t.Error("another segment was cut")
	}
	got, heed, err := Cut(fd, func(i Info) bool { return i.Nonce == nonce })
	if got.Nonce != nonce || c.Back() != BackNetwork || s.Back() != BackNetwork || !heed || err != nil {
		t.Fatal(got, heed, err)
	}
	if n, err := c.Send([]byte("after")); n != 0 || !errors.Is(err, ErrCut) {
		t.Error("Send: ", n, err)
	}
	if n, err := c.SendVELO([]byte("after")); n != 0 || !errors.Is(err, ErrCut) {
		t.Error("SendVELO: ", n, err)
	}
	if _, err := c.Reserve(5000); !errors.Is(err, ErrCut) {
		t.Error("Reserve: ", err)
	}
	if err := c.Demote(); err != nil {
		t.Error("Demote: ", err)
	}
	b := make([]byte, 100)
	if n, err := s.Recv(b); string(b[:n]) != "before" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	if n, err := s.Recv(b); n != 0 || err != ErrDemoted {
		t.Error("the receiver: ", n, err)
	}
}

// A direction that is not promoted yet never is.
func TestCutBeforePromotion(t *testing.T) {
	c, s := pair(t, Config{})
	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}
	if _, heed, err := Cut(c.seg.Fd(), func(Info) bool { return true }); !heed || err != nil {
		t.Fatal(heed, err)
	}
	for _, e := range []*End{c, s} {
		if err := e.Promote(0); !errors.Is(err, ErrCut) {
			t.Error("Promote: ", err)
		}
	}
}

// What is no segment is left as it is.
func TestCutOther(t *testing.T) {
	fd, err := unix.MemfdCreate("exnet-ds", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for _, size := range []int64{0, 10, 1 << 20} {
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Cut(fd, func(Info) bool { return true }); err == nil {
			t.Errorf("%d bytes of zeros are a segment", size)
		}
	}
}

// What the broker switches off goes back at both ends, and the peer is told when it is on again.
func TestSwitchedOff(t *testing.T) {
	for _, receiver := range []bool{false, true} {
		c, s := promoted(t, Config{})
		var word atomic.Uint64
		heeding := c
		if receiver {
			heeding = s
		}
		heeding.HeedSwitch(&word)
		if n, err := c.Send([]byte("before")); n != 6 || err != nil {
			t.Fatal(n, err)
		}
		word.Store(0xff << (8 * SwitchByte))
		b := make([]byte, 100)
		if n, err := s.Recv(b); string(b[:n]) != "before" || err != nil {
			t.Errorf("%q, %v", b[:n], err)
		}
		if n, err := c.Send([]byte("after")); n != 0 || !errors.Is(err, ErrCut) {
			t.Error("Send: ", n, err)
		}
		if c.Back() != BackSwitch || s.Back() != BackSwitch {
			t.Error("not both ends know why")
		}
		word.Store(0)
		if heeding.heedBroker(); c.Back() != 0 || s.Back() != 0 {
			t.Error("it is on again, and not both ends know")
		}
	}
}

// A program that has fallen back, and whose peer's node is lost, reads its queue up to DEMOTE only
// if that stands: else its peer may have written the same to the shadow.
func TestFallenBackNodeLost(t *testing.T) {
	for _, stands := range []bool{false, true} {
		node, s := promoted(t, Config{})
		node.own.flags.Or(flagRelayed)
		if n, err := node.Send([]byte("before")); n != 6 || err != nil {
			t.Fatal(n, err)
		}
		if err := s.FallBack(); err != nil {
			t.Fatal(err)
		}
		demote, err := node.nextSlot()
		if err != nil {
			t.Fatal(err)
		}
		node.publish(demote, TagDemote, 0)
		if stands {
			node.raiseFlags(standsFlag)
		}
		node.raiseFlags(closedFlag | resetFlag)
		b := make([]byte, 100)
		if !s.Resume(false) {
			t.Fatal("it waits for the peer")
		}
		if n, err := s.Recv(b); string(b[:n]) != "before" || err != nil {
			t.Errorf("%q, %v", b[:n], err)
		}
		want := ErrReset
		if stands {
			want = ErrDemoted
		}
		if _, err := s.Recv(b); err != want {
			t.Errorf("stands %v: %v", stands, err)
		}
	}
}

package segment

import (
	"bytes"
	"testing"

	"exnet/internal/foreigntest"
)

// A peer that changes every byte as soon as it was read changes nothing of what is
// received, in whatever way it comes.
func TestReceivedIsReadOnce(t *testing.T) {
	recv := func(t *testing.T, e *End, n int) (got []byte) {
		t.Helper()
		buf := make([]byte, 700) // not a divisor of what comes
		for len(got) < n {
			k, err := e.Recv(buf)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:k]...)
		}
		return got
	}
	lent := func(t *testing.T, e *End, n int) (got []byte) {
		t.Helper()
		for len(got) < n {
			m, err := e.Next()
			if err != nil {
				t.Fatal(err)
			}
			got = m.AppendTo(got)
			e.Release(m.Len())
		}
		return got
	}
	for _, tt := range []struct {
		name string
		n    int
		send func(c *End, p []byte) error
		recv func(t *testing.T, e *End, n int) []byte
	}{
		{"VELO", 480, send, recv},
		{"VELO that is lent", 480, send, lent},
		{"RMA", 50000, send, recv},
		{"RMA that is lent", 50000, send, lent},
		{"room in the ring", 4000, reserved, recv},
		{"region", 50000, inRegion, recv},
		{"region that is lent", 50000, inRegion, lent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, s := promoted(t, Config{})
			want := pattern(tt.n, 3)
			reads := foreigntest.Watch(t, foreigntest.Flip)
			if err := tt.send(c, want); err != nil {
				t.Fatal(err)
			}
			got := tt.recv(t, s, tt.n)
			reads.Stop()
			if !bytes.Equal(got, want) {
				t.Error("something else was received than was sent")
			}
			if read, again := reads.Bytes(); read < tt.n || again != 0 {
				t.Errorf("%d bytes read, %d of them again", read, again)
			}
		})
	}
}

func send(c *End, p []byte) error {
	n, err := c.Send(p)
	if err == nil && n < len(p) {
		err = ErrAgain
	}
	return err
}

// reserved is send through Reserve and Commit.
func reserved(c *End, p []byte) error {
	m, err := c.Reserve(len(p))
	if err != nil {
		return err
	}
	if _, err := m.FillFrom(bytes.NewReader(p)); err != nil {
		return err
	}
	return c.Commit(len(p))
}

// inRegion is send from a region.
func inRegion(c *End, p []byte) error {
	r, err := NewRegion(len(p))
	if err != nil {
		return err
	}
	copy(r.Bytes(), p)
	_, err = c.SendRegion(r, 0, len(p))
	return err
}

// What comes into a sink is what the peer has said once.
func TestSinkIsReadOnce(t *testing.T) {
	c, s, r, number := sinks(t)
	if err := s.OfferSink(r, number, 4096, 100000); err != nil {
		t.Fatal(err)
	}
	reads := foreigntest.Watch(t, foreigntest.Flip)
	if err := send(c, pattern(100000, 5)); err != nil {
		t.Fatal(err)
	}
	n, err := s.RecvSink()
	if n != 100000 || err != nil || !bytes.Equal(r.Bytes()[4096:][:n], pattern(n, 5)) {
		t.Fatal(n, err)
	}
	if read, again := reads.Bytes(); read == 0 || again != 0 {
		t.Errorf("%d bytes read, %d of them again", read, again)
	}
}

// What was sent and goes to the shadow after all lies in memory that the peer can
// change, too: each byte of it is read once.
func TestReturnReadsOnce(t *testing.T) {
	c, s := promoted(t, Config{})
	want := pattern(100000, 7)
	if err := send(c, want); err != nil {
		t.Fatal(err)
	}
	if err := s.FallBack(); err != nil {
		t.Fatal(err)
	}
	reads := foreigntest.Watch(t, foreigntest.Flip)
	var got []byte
	err := c.ReturnToTCP(func(p []byte) (int, error) {
		got = append(got, p...)
		return len(p), nil
	})
	if err != nil || !bytes.Equal(got, want) {
		t.Fatal("the shadow got something else than was sent", err)
	}
	if read, again := reads.Bytes(); read < len(want) || again != 0 {
		t.Errorf("%d bytes read, %d of them again", read, again)
	}
}

// The header of a segment is read once, and what was read is what is used.
func TestHeaderIsReadOnce(t *testing.T) {
	near, err := Create(testInfo, Config{Slots: 16, Ring: minRing})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Retire()
	reads := foreigntest.Watch(t, foreigntest.Flip)
	far, err := Map(near.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Retire()
	if far.Info() != testInfo || far.Config() != near.Config() {
		t.Errorf("%+v, %+v", far.Info(), far.Config())
	}
	if read, again := reads.Bytes(); read != headLen || again != 0 {
		t.Errorf("%d bytes read, %d of them again", read, again)
	}
}

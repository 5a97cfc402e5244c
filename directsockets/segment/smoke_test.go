package segment

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// looseEnds returns the two ends of a connection, each with a mapping of its own.
// The caller closes and retires them.
func looseEnds(tb testing.TB, c Config) (client, server *End) {
	tb.Helper()
	seg, err := Create(Info{Nonce: NewNonce(), Client: netip.MustParseAddrPort("10.0.0.1:40000"),
		Server: netip.MustParseAddrPort("10.0.0.2:80")}, c)
	if err != nil {
		tb.Fatal(err)
	}
	far, err := Map(seg.Fd())
	if err != nil {
		tb.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	if client, err = NewEnd(seg, Client, bells[0], nil); err != nil {
		tb.Fatal(err)
	}
	if server, err = NewEnd(far, Server, bells[1], nil); err != nil {
		tb.Fatal(err)
	}
	return client, server
}

// pair is looseEnds until the end of the test.
func pair(tb testing.TB, c Config) (client, server *End) {
	tb.Helper()
	client, server = looseEnds(tb, c)
	tb.Cleanup(func() {
		client.Close(false)
		server.Close(false)
		client.seg.Retire()
		server.seg.Retire()
	})
	return client, server
}

// promoted is pair, with both directions in the segment.
func promoted(tb testing.TB, c Config) (client, server *End) {
	tb.Helper()
	client, server = pair(tb, c)
	if err := server.Attach(); err != nil {
		tb.Fatal(err)
	}
	for _, ends := range [][2]*End{{client, server}, {server, client}} {
		if err := ends[0].Promote(17); err != nil {
			tb.Fatal(err)
		}
		if n, ok := ends[1].PromotedAt(); n != 17 || !ok {
			tb.Fatal(n, ok)
		}
	}
	return client, server
}

func TestSmoke(t *testing.T) {
	c, s := promoted(t, Config{})
	for _, size := range []int{1, 64, 120, 121, 480, 481, 5000, 70000, 1 << 20} {
		p := bytes.Repeat([]byte{byte(size), 1, 2}, size)[:size]
		got := make([]byte, 0, size)
		buf := make([]byte, size)
		for rest := p; len(got) < size; {
			n, err := c.Send(rest)
			if err != nil && err != ErrAgain {
				t.Fatal(err)
			}
			rest = rest[n:]
			n, err = s.Recv(buf)
			if err != nil && err != ErrAgain {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		if !bytes.Equal(got, p) {
			t.Fatalf("size %d", size)
		}
	}
	if got, want := s.count[ReceivedDirect].Load(), c.count[SentDirect].Load(); got != want || got == 0 {
		t.Errorf("%d bytes received, %d sent", got, want)
	}
	for i := range 6 {
		if got, want := s.count[ReceivedVELO+i].Load(), c.count[SentVELO+i].Load(); got != want {
			t.Errorf("messages of kind %d: %d received, %d sent", i, got, want)
		}
	}
	if !c.readCredit() || c.count[RingUsed].Load() != 0 || c.count[RingSize].Load() != 2<<20 {
		t.Error("ring:", c.count[RingUsed].Load(), c.count[RingSize].Load())
	}
	if err := c.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
}

// A PAUSE takes a direction back that was direct. Right after PROMOTE it takes nothing back, and
// does not count.
func TestPauseCounts(t *testing.T) {
	c, s := promoted(t, Config{})
	for _, want := range []uint64{1, 1, 2} {
		if want != c.count[SentDemote].Load() {
			if _, err := c.Send([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Recv(make([]byte, 1)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := c.Pause(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(make([]byte, 1)); err != ErrPaused {
			t.Fatal(err)
		}
		if sent, received := c.count[SentDemote].Load(), s.count[ReceivedDemote].Load(); sent != want || received != want {
			t.Errorf("%d were sent, %d received, want %d", sent, received, want)
		}
		if err := errors.Join(c.Resumed(), c.Promote(17)); err != nil {
			t.Fatal(err)
		}
		if n, ok := s.PromotedAt(); n != 17 || !ok {
			t.Fatal(n, ok)
		}
	}
}

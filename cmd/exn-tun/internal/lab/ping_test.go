package lab

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

const pingOutput = `PING 10.2.0.2 (10.2.0.2) 56(84) bytes of data.
64 bytes from 10.2.0.2: icmp_seq=1 ttl=64 time=0.034 ms
64 bytes from 10.2.0.2: icmp_seq=2 ttl=64 time=12.5 ms
From 10.2.0.1 icmp_seq=3 Destination Host Unreachable
64 bytes from 10.2.0.2: icmp_seq=4 ttl=64 time=1024 ms

--- 10.2.0.2 ping statistics ---
4 packets transmitted, 3 received, +1 errors, 25% packet loss, time 30ms
rtt min/avg/max/mdev = 0.034/0.040/0.045/0.005 ms
`

func TestParsePing(t *testing.T) {
	trips, err := parsePing(pingOutput)
	want := []time.Duration{34 * time.Microsecond, 12500 * time.Microsecond, 1024 * time.Millisecond}
	if err != nil || !slices.Equal(trips, want) {
		t.Errorf("got %v, %v; want %v", trips, err, want)
	}
	if trips, err := parsePing(""); err != nil || len(trips) != 0 {
		t.Errorf("of nothing: %v, %v", trips, err)
	}
	for _, bad := range []string{
		"64 bytes from 10.2.0.2: icmp_seq=1 ttl=64 time=0.034 ms (DUP!)\n",
		"64 bytes from 10.2.0.2: icmp_seq=1 ttl=64 time=0.0.34 ms\n",
		"64 bytes from 10.2.0.2: icmp_seq=1 ttl=64 time=6666666666666666666666666666 ms\n",
	} {
		if trips, err := parsePing(bad); err == nil {
			t.Errorf("%q gives %v, want an error", bad, trips)
		}
	}
}

func FuzzParsePing(f *testing.F) {
	f.Add(pingOutput)
	f.Fuzz(func(t *testing.T, out string) {
		trips, _ := parsePing(out)
		for _, d := range trips {
			if d < 0 {
				t.Errorf("a round trip of %v", d)
			}
		}
	})
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{"": "", " \n": "", "a": ": a", "a\nb c\n\n": ": b c"} {
		if got := lastLine(text); got != want {
			t.Errorf("of %q: %q, want %q", text, got, want)
		}
	}
}

func loopbackNS(t *testing.T) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	if err := loopbackUp(ns); err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestRootPingers: the system's ping and the built-in one find the same.
func TestRootPingers(t *testing.T) {
	leavesNothing(t)
	ns := loopbackNS(t)
	pingers := []Pinger{{"built-in", echoPing}}
	if p := NewPinger(); p.Name != "built-in" {
		pingers = append(pingers, p)
	} else {
		t.Log("no ping of iputils here")
	}
	for _, p := range pingers {
		for _, addr := range []string{"127.0.0.1", "::1"} {
			trips, err := p.Ping(t.Context(), ns, netip.MustParseAddr(addr), PingSpec{3, 10 * time.Millisecond})
			if err != nil || len(trips) != 3 {
				t.Errorf("%s to %s: %v, %v; want 3 round trips", p.Name, addr, trips, err)
			}
			for _, d := range trips {
				if d <= 0 || d > 30*time.Second {
					t.Errorf("%s to %s: a round trip of %v", p.Name, addr, d)
				}
			}
		}
		// A namespace without a way out.
		if _, err := p.Ping(t.Context(), ns, netip.MustParseAddr("10.9.9.9"), PingSpec{1, 10 * time.Millisecond}); err == nil {
			t.Errorf("%s to an address without a route: no error", p.Name)
		} else {
			t.Log(err)
		}
	}
}

func TestNoPingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if p := NewPinger(); p.Name != "built-in" {
		t.Errorf("pinger %q, want the built-in", p.Name)
	}
}

// TestRootPingCancelled: nobody answers, and the caller gives up.
func TestRootPingCancelled(t *testing.T) {
	leavesNothing(t)
	l := testLab(t, 2)
	interrupted := errors.New("interrupted")
	for _, p := range []Pinger{{"built-in", echoPing}, NewPinger()} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, interrupted)
		began := time.Now()
		trips, err := p.Ping(ctx, l.Cluster.Namespace(0), netip.MustParseAddr("10.2.0.99"), PingSpec{1000, 100 * time.Millisecond})
		cancel()
		if !errors.Is(err, interrupted) {
			t.Errorf("%s: %v, %v; want the context's cause", p.Name, trips, err)
		}
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("%s: cancelling took %v", p.Name, d)
		}
	}
}

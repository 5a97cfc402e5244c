package ipstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestUDP(t *testing.T) {
	for _, mtu := range []int{1500, 65535} {
		for _, target := range []string{"10.2.0.2", "fd00::2"} {
			t.Run(fmt.Sprintf("mtu=%d/%s", mtu, target), func(t *testing.T) {
				a, b, la := pair(t, mtu, false, bothFamilies...)
				la.mu.Lock()
				la.see = func(f hubFrame) { checkWire(t, f, mtu) }
				la.mu.Unlock()
				l, err := b.ListenPacket("udp", net.JoinHostPort(target, "53"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				c, err := a.DialContext(t.Context(), "udp", net.JoinHostPort(target, "53"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for _, n := range []int{0, 1, 1400, 5000, 60000} { // some in fragments
					want := pattern(n)
					if _, err := c.Write(want); err != nil {
						t.Fatal(n, err)
					}
					got := make([]byte, 65536)
					if err := l.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
						t.Fatal(err)
					}
					m, _, err := l.ReadFrom(got)
					if err != nil || !bytes.Equal(got[:m], want) {
						t.Errorf("%d bytes: got %d: %v", n, m, err)
					}
				}
			})
		}
	}
}

func TestHTTP(t *testing.T) {
	a, b, _ := pair(t, 65535, false, bothFamilies...)
	l, err := b.Listen("tcp6", "[fd00::2]:80")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	tr := &http.Transport{DialContext: a.DialContext}
	resp, err := (&http.Client{Transport: tr, Timeout: 3 * time.Minute}).Post("http://[fd00::2]/", "text/plain", bytes.NewReader(pattern(100000)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !bytes.Equal(got, pattern(100000)) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	tr.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestDialErrors(t *testing.T) {
	a, _, _ := pair(t, 1500, false, bothFamilies...)
	ctx := t.Context()
	dial := func(network, address string) error {
		c, err := a.DialContext(ctx, network, address)
		if err == nil {
			c.Close()
		} else if c != nil {
			t.Errorf("%s %s: connection %v and error %v", network, address, c, err)
		}
		return err
	}
	for _, tc := range []struct{ network, address string }{
		{"unix", "10.2.0.2:80"},
		{"tcp", "10.2.0.2"},
		{"tcp", "host.example:80"},
		{"tcp", "10.2.0.2:nosuchport"},
		{"tcp", ":80"},
		{"tcp4", "[fd00::2]:80"},
		{"tcp6", "10.2.0.2:80"},
		{"tcp", "192.0.2.1:80"}, // no route
		{"tcp", "10.2.0.2:80"},  // refused
		{"udp", "[2001::1]:80"}, // no route
	} {
		if err := dial(tc.network, tc.address); err == nil {
			t.Errorf("dial %s %s: no error", tc.network, tc.address)
		}
	}
	if l, err := a.Listen("udp", ":80"); err == nil {
		l.Close()
		t.Error("Listen on udp")
	}
	if l, err := a.Listen("tcp", "10.9.9.9:80"); err == nil {
		l.Close()
		t.Error("Listen on a foreign address")
	}
	if l, err := a.Listen("tcp", "nonsense"); err == nil {
		l.Close()
		t.Error("Listen on nonsense")
	}
	for _, address := range []string{"nonsense", "10.9.9.9:80"} {
		if l, err := a.ListenPacket("udp", address); err == nil {
			l.Close()
			t.Errorf("ListenPacket on %s", address)
		}
	}
	if l, err := a.ListenPacket("tcp", ":80"); err == nil {
		l.Close()
		t.Error("ListenPacket on tcp")
	}
	// A host that is not there.
	short, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	start := time.Now()
	if c, err := a.DialContext(short, "tcp4", "10.2.0.77:80"); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connection %v, error %v after %v", c, err, time.Since(start))
	}
}

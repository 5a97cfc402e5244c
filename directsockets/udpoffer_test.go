package directsockets_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/test/testlab"
)

// TestUDPOfferAgain has a receiver give back what it was granted, as one does that ends, or whose
// socket is closed, before it has attached; then the broker ends with an offer. Each time the
// sender offers another flow. The C library's test does the same (preload/udpinterop_test.go).
func TestUDPOfferAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.sock")
	stop := runBroker(t, path)
	c := dialBroker(t, path)
	s := listenUDP(t, directsockets.Config{Broker: c, UpgradeSends: 1}, "udp4", "127.0.0.1:0")
	r := testlab.NewClaimer(t, c)
	send := func() {
		if _, err := s.WriteTo([]byte("x"), r.Addr); err != nil {
			t.Fatal(err)
		}
	}
	giveBack := func() {
		g := r.Granted(t, send)
		_ = unix.Close(g.Segment)
		_ = unix.Close(g.Bell)
	}
	giveBack()
	giveBack()
	r.Offered(t, send)
	stop()
	stop = runBroker(t, path)
	t.Cleanup(func() { stop() })
	giveBack()
}

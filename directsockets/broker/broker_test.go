package broker

import (
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"

	"golang.org/x/sys/unix"
)

// TestOfferClaim goes through a set-up between two clients, for each kind of
// listener.
func TestOfferClaim(t *testing.T) {
	for _, tt := range []struct{ name, network, listen, dial string }{
		{"IPv4", "tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"IPv4, all addresses", "tcp4", "0.0.0.0:0", "127.0.0.7"},
		{"IPv6", "tcp6", "[::1]:0", "[::1]"},
		{"dual stack, IPv4", "tcp", "[::]:0", "127.0.0.1"},
		{"dual stack, IPv6", "tcp", "[::]:0", "[::1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFDs(t)
			s, _ := startServer(t, Config{Node: 7})
			server, dialer := dialClient(t, client.Config{Path: s.Path()}), dialClient(t, client.Config{Path: s.Path()})
			if n := dialer.Node(); n != 7 {
				t.Errorf("node %d", n)
			}
			ln := listen(t, tt.network, tt.listen)
			p := port(ln.Addr())
			if dialer.Listener(p) {
				t.Error("a listener is shown that is not announced")
			}
			a := server.Listen(client.Socket{Conn: rawOf(t, ln)}, func(r wire.Reason) { t.Errorf("refused: %v", r) })
			brokertest.Eventually(t, "the listener is shown", func() bool { return dialer.Listener(p) })

			conn := connect(t, ln, tt.dial+":"+portText(p))
			bucket := conn.key.Bucket()
			if _, may := server.MayHaveOffer(bucket, 0); may {
				t.Error("an offer is shown that nobody made")
			}
			if r := claimFor(t, server, conn); r.err != client.ErrNone {
				t.Errorf("claimed what was not offered: %v", r.err)
			}
			b, refused := offerFor(t, dialer, conn)
			brokertest.Eventually(t, "the offer is shown", func() bool { _, may := server.MayHaveOffer(bucket, 0); return may })
			r := claimFor(t, server, conn)
			if r.err != nil || r.Nonce != b.nonce || r.Key != conn.key {
				t.Fatalf("%+v, want %v", r, conn.key)
			}
			if _, err := unix.Write(r.Bell, []byte{1}); err != nil {
				t.Error(err)
			}
			if b.ended() {
				t.Error("the doorbell has ended")
			}
			if word, may := server.MayHaveOffer(bucket, 0); may || word>>16 != 1 {
				t.Errorf("word %#x after the claim", word)
			}
			if r := claimFor(t, server, conn); r.err != client.ErrNone {
				t.Errorf("claimed twice: %v", r.err)
			}
			select {
			case r := <-refused:
				t.Errorf("refused, but claimed: %v", r)
			default:
			}
			a.Close()
			brokertest.Eventually(t, "the listener is not shown any more", func() bool { return !dialer.Listener(p) })
		})
	}
}

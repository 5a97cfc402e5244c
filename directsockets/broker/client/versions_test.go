package client

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
)

// A client speaks the version that its broker has chosen, and no other.
func TestVersionOfTheBroker(t *testing.T) {
	page, err := wire.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for version := wire.Versions.Oldest; version <= wire.Versions.Newest+1; version++ {
		asked := make(chan wire.Message, 10)
		path := fakeBroker(t, func(t *testing.T, conn *net.UnixConn) {
			in, err := rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors)
			for err == nil {
				var b []byte
				var fds rpc.Descriptors
				b, fds, err = in.Next()
				fds.Close()
				var m wire.Message
				if err != nil || m.UnmarshalBinary(b) != nil {
					return
				}
				asked <- m
				if m.Type == wire.Hello {
					b, _ = wire.Message{Type: wire.Welcome, Version: version, ID: m.ID}.AppendBinary(nil)
					_, _, _ = conn.WriteMsgUnix(b, unix.UnixRights(page.Fd()), nil)
				} else {
					b, _ = wire.Message{Type: wire.None, Version: wire.Versions.Oldest + wire.Versions.Newest - version, ID: m.ID}.AppendBinary(nil)
					_, _ = conn.Write(b)
				}
			}
		})
		c, err := Dial(Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		hello := <-asked
		if v, ok := hello.Agreed(); !ok || v != wire.Versions.Newest || hello.Version != wire.Versions.Oldest {
			t.Errorf("%+v", hello)
		}
		if !wire.Versions.Has(version) {
			brokertest.Eventually(t, "the client knows why", func() bool { return c.Absent() == connstats.WhyNoBroker })
			c.Close()
			continue
		}
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		withdrawn := wire.Nonce{1}
		c.Withdraw(withdrawn)
		if m := <-asked; m.Type != wire.Withdraw || m.Version != version || m.Nonce != withdrawn {
			t.Errorf("%+v, want version %d", m, version)
		}
		if m := <-asked; m.Type != wire.Hello { // the answer broke the rules
			t.Errorf("%+v", m)
		}
		c.Close()
	}
}

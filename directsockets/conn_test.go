package directsockets_test

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"

	"exnet/directsockets"
)

func TestUpgrade(t *testing.T) {
	c, s := directPair(t)
	t.Log(c.Stats())
	t.Log(s.Stats())
}

func TestConnDirect(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c, s := directPair(t)
		return c, s, func() { c.Close(); s.Close() }, nil
	})
}

func TestConnLazy(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t)}
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c, s := pair(t, cfg, cfg)
		return c, s, func() { c.Close(); s.Close() }, nil
	})
}

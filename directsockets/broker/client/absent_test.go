package client

import (
	"errors"
	"net"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/connstats"
)

// TestAbsent has brokers that hang up when they have read HELLO, as one of another
// version does, and that never answer: the client knows which.
func TestAbsent(t *testing.T) {
	for _, tt := range []struct {
		name string
		want connstats.Why
		hear func(c *net.UnixConn)
	}{
		{"version", connstats.WhyVersion, func(*net.UnixConn) {}},
		{"silent", connstats.WhySilent, func(c *net.UnixConn) { _, _ = c.Read(make([]byte, 1)) }}, // until the client is gone
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := fakeBroker(t, func(_ *testing.T, c *net.UnixConn) {
				_, _, _, _, _ = c.ReadMsgUnix(make([]byte, 64), nil)
				tt.hear(c)
			})
			c, err := Dial(Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			brokertest.Eventually(t, "the client knows why", func() bool { return c.Absent() == tt.want })
			if err := c.Wait(t.Context()); !errors.Is(err, ErrNoBroker) || errors.Is(err, ErrVersion) != (tt.want == connstats.WhyVersion) {
				t.Errorf("Wait: %v", err)
			}
		})
	}
}

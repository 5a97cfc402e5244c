package client

import (
	"errors"
	"net"
	"strings"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/wire"

	"golang.org/x/sys/unix"
)

// TestAbsent has brokers that hang up when they have read HELLO, as one of another version does, or
// before, also before it is sent, that refuse the client, that never answer: the client knows
// which.
func TestAbsent(t *testing.T) {
	hungUp := make(chan struct{})
	first := func(say func(c *net.UnixConn)) func(c *net.UnixConn) {
		return func(c *net.UnixConn) {
			say(c)
			c.Close()
			select {
			case hungUp <- struct{}{}:
			case <-t.Context().Done():
			}
		}
	}
	for _, tt := range []struct {
		name string
		want connstats.Why
		hear func(c *net.UnixConn)
	}{
		{"version", connstats.WhyVersion, func(c *net.UnixConn) { read(c) }},
		{"silent", connstats.WhySilent, func(c *net.UnixConn) { read(c); read(c) }}, // until the client is gone
		{"unread", connstats.WhyNoBroker, awaitHello},
		{"full", connstats.WhyNoMemory, func(c *net.UnixConn) { read(c); refuse(c, wire.TooMany) }},
		{"unread-full", connstats.WhyNoMemory, func(c *net.UnixConn) { awaitHello(c); refuse(c, wire.TooMany) }},
		{"unread-ends", connstats.WhyNoBroker, func(c *net.UnixConn) { awaitHello(c); refuse(c, wire.Expired) }},
		{"first", connstats.WhyNoBroker, first(func(*net.UnixConn) {})},
		{"first-full", connstats.WhyNoMemory, first(func(c *net.UnixConn) { refuse(c, wire.TooMany) })},
		{"first-ends", connstats.WhyNoBroker, first(func(c *net.UnixConn) { refuse(c, wire.Expired) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := fakeBroker(t, func(_ *testing.T, c *net.UnixConn) { tt.hear(c) })
			cfg := Config{Path: path}
			if strings.HasPrefix(tt.name, "first") {
				cfg.In = func(connect func() error) error {
					err := connect()
					if err == nil {
						<-hungUp
					}
					return err
				}
			}
			c, err := Dial(cfg)
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

// read reads a message, without its descriptors.
func read(c *net.UnixConn) { _, _, _, _, _ = c.ReadMsgUnix(make([]byte, 64), nil) }

// awaitHello waits until there is something to read, and leaves it there.
func awaitHello(c *net.UnixConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
}

// refuse says REFUSED in place of WELCOME.
func refuse(c *net.UnixConn, why wire.Reason) {
	b, err := wire.Message{Type: wire.Refused, Reason: why}.AppendBinary(nil)
	if err == nil {
		_, _ = c.Write(b)
	}
}

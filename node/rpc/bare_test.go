package rpc

import (
	"net"
	"testing"

	"exnet/directsockets/broker/brokertest"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// TestBare: what a peer has sent says whether its connection may take long to close.
func TestBare(t *testing.T) {
	netnstest.CheckFDs(t)
	tr := brokertest.NewTracer(t)
	send := func(b []byte, fds ...int) func(c *net.UnixConn) {
		return func(c *net.UnixConn) {
			var rights []byte
			if len(fds) > 0 {
				rights = unix.UnixRights(fds...)
			}
			raw, err := c.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			_ = raw.Control(func(fd uintptr) { err = unix.Sendmsg(int(fd), b, rights, nil, 0) })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	closed := func(c *net.UnixConn) { c.Close() }
	type steps []func(c *net.UnixConn)
	for name, tt := range map[string]struct {
		does steps
		want bool
	}{
		"nothing":                    {nil, true},
		"a message":                  {steps{send([]byte("hello"))}, true},
		"an empty message":           {steps{send(nil)}, true},
		"a descriptor":               {steps{send([]byte("x"), tr.W)}, false},
		"a descriptor, closed":       {steps{send([]byte("x"), tr.W), closed}, false},
		"an empty one, a descriptor": {steps{send(nil), send([]byte("x"), tr.W)}, false},
		"a message, two descriptors": {steps{send([]byte("hello")), send([]byte("x"), tr.W, tr.W)}, false},
		"a descriptor with no byte":  {steps{send([]byte("hello")), send(nil, tr.W)}, false},
		"messages, closed":           {steps{send([]byte("hello")), send(nil), send([]byte("x")), closed}, true},
		"closed":                     {steps{closed}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ends := brokertest.SocketPair(t)
			defer ends[1].Close()
			out, err := NewOutbox(ends[0], 1)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			for _, f := range tt.does {
				f(ends[1])
			}
			out.Abort()
			if got := out.Bare(); got != tt.want {
				t.Errorf("%v", got)
			}
		})
	}
	tr.ClosedEverywhere()
	t.Run("too many to read", func(t *testing.T) {
		ends := brokertest.SocketPair(t)
		defer ends[1].Close()
		out, err := NewOutbox(ends[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		for range 16 { // Bare looks no further
			send([]byte("x"))(ends[1])
		}
		out.Abort()
		if out.Bare() {
			t.Error("it reads on")
		}
	})
}

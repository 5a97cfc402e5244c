package clustercheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"exnet/directsockets"
	"exnet/internal/ctxend"
)

// Times of a pair.
const (
	// nearTime is how long the connection of a near client has to become direct: an agent may be
	// just looking for the container. That of a far one becomes direct at once, or not at all.
	nearTime = 20 * time.Second
	farTime  = 2 * time.Second
	// measureTime is how long the round trips of each kind are counted.
	measureTime = 500 * time.Millisecond
	// rttBytes is what goes there and back.
	rttBytes = 64
)

// Outcome is what a client saw.
type Outcome struct {
	Direct bool   `json:"direct"`
	Reason string `json:"reason,omitempty"` // why it is not direct
	// RoundTrip is the mean of 64 bytes there and back, in microseconds; TCP is that of a
	// connection of the kernel's between the same pods.
	RoundTrip float64 `json:"round_trip_us"`
	TCP       float64 `json:"tcp_us"`
}

// Listen returns a listener for Serve.
func Listen(address string) (net.Listener, error) { return directsockets.Listen("tcp", address) }

// Serve sends back what comes by the connections of l, until ctx ends. It closes l.
func Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	defer ctxend.Do(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, struct{ io.Reader }{c}) // by Read and Write, not by splice
		}()
	}
}

// Dial connects to a server of Serve, and returns what it saw. The connection has so long to become
// direct. An error: it did not work.
func Dial(ctx context.Context, address string, within time.Duration) (o Outcome, err error) {
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return o, err
	}
	defer plain.Close()
	c, err := directsockets.DialContext(ctx, "tcp", address)
	if err != nil {
		return o, err
	}
	defer c.Close()
	defer ctxend.Do(ctx, func() {
		plain.Close()
		c.Close()
	})()
	direct, ok := c.(*directsockets.Conn)
	if !ok {
		return o, errors.New("no connection of direct sockets")
	}
	for end := time.Now().Add(within); !direct.Stats().Direct() && time.Now().Before(end); {
		if err := exchange(c); err != nil {
			return o, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if o.TCP, err = roundTrip(plain); err != nil {
		return o, err
	}
	if o.RoundTrip, err = roundTrip(c); err != nil {
		return o, err
	}
	s := direct.Stats()
	if o.Direct = s.Direct(); !o.Direct {
		o.Reason = s.Reason.String()
	}
	return o, nil
}

// roundTrip returns the mean of the round trips of measureTime, in microseconds.
func roundTrip(c net.Conn) (float64, error) {
	n, begin := 0, time.Now()
	for ; time.Since(begin) < measureTime; n++ {
		if err := exchange(c); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(begin).Microseconds()) / float64(n), nil
}

// exchange sends bytes, and expects them back.
func exchange(c net.Conn) error {
	var sent, got [rttBytes]byte
	for i := range sent {
		sent[i] = byte(i)
	}
	if _, err := c.Write(sent[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return err
	}
	if got != sent {
		return fmt.Errorf("sent %x, got %x back", sent, got)
	}
	return nil
}

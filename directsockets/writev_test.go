package directsockets_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// TestWriteBuffers has pieces of all sizes come in order, and taken from the list.
func TestWriteBuffers(t *testing.T) {
	broker := startBroker(t)
	for name, config := range map[string]directsockets.Config{
		"direct": {Broker: broker, Eager: true},
		"tcp":    {Off: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := pair(t, config, config)
			defer s.Close()
			var bufs net.Buffers
			var want bytes.Buffer
			for i, size := range []int{0, 1, 100, 0, 16 << 10, 16<<10 + 1, 3, 64 << 10, 200 << 10, 7, 0, 15 << 10, 15 << 10, 15 << 10, 15 << 10, 15 << 10, 0} {
				b := bytes.Repeat([]byte{byte(i + 1)}, size)
				bufs = append(bufs, b)
				want.Write(b)
			}
			got := make(chan []byte, 1)
			go func() {
				b, _ := io.ReadAll(s) // what is missing shows
				got <- b
			}()
			n, err := c.WriteBuffers(&bufs)
			if n != int64(want.Len()) || err != nil || len(bufs) != 0 {
				t.Errorf("%d bytes of %d, %d pieces left, %v", n, want.Len(), len(bufs), err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if b := <-got; !bytes.Equal(b, want.Bytes()) {
				t.Errorf("%d bytes came, of %d, or others", len(b), want.Len())
			}
			bufs = net.Buffers{[]byte("x")}
			if n, err := c.WriteBuffers(&bufs); n != 0 || !errors.Is(err, net.ErrClosed) || len(bufs) != 1 {
				t.Errorf("after Close: %d, %v, %d pieces left", n, err, len(bufs))
			}
		})
	}
}

// TestWriteBuffersDeadline has a reader that does not read: what was not written stays
// in the list.
func TestWriteBuffersDeadline(t *testing.T) {
	broker := startBroker(t)
	config := directsockets.Config{Broker: broker}
	c, s := pair(t, config, config)
	defer c.Close()
	defer s.Close()
	all := 0
	var bufs net.Buffers
	for range 200 {
		bufs = append(bufs, make([]byte, 300<<10), make([]byte, 10))
		all += 300<<10 + 10
	}
	began := make(chan error, 1)
	go func() {
		defer close(began)
		eventually(t, "something is written", func() bool {
			sent := c.Stats().Counters
			return sent[segment.SentDirect]+sent[segment.SentShadow] > 0
		})
		began <- c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	}()
	n, err := c.WriteBuffers(&bufs)
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	left := 0
	for _, b := range bufs {
		left += len(b)
	}
	if n == 0 || int(n)+left != all {
		t.Errorf("%d bytes written, %d left, of %d", n, left, all)
	}
}

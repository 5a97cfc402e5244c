package directsockets_test

import (
	"net"
	"testing"
	"time"

	"exnet/directsockets"
)

// lateShadow is a shadow during whose Write, when all bytes have gone, something happens
// to the connection.
type lateShadow struct {
	net.Conn
	meanwhile func()
}

func (s *lateShadow) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.meanwhile()
	return n, err
}

// TestWriteEndsWell has a deadline pass, and the connection be closed, after a write has
// given its last byte away and before it returns: it has succeeded, as TCP's has.
func TestWriteEndsWell(t *testing.T) {
	for name, meanwhile := range map[string]func(*directsockets.Conn){
		"deadline":   func(c *directsockets.Conn) { c.SetWriteDeadline(time.Now().Add(-time.Second)) },
		"close":      func(c *directsockets.Conn) { go c.Close(); time.Sleep(10 * time.Millisecond) },
		"closewrite": func(c *directsockets.Conn) { c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			plain, peer := tcpPair(t)
			defer peer.Close()
			shadow := &lateShadow{Conn: plain}
			c, err := directsockets.NewConn(shadow, false, directsockets.Config{Off: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			shadow.meanwhile = func() { meanwhile(c) }
			if n, err := c.Write([]byte("last words")); n != 10 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

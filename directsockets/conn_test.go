package directsockets_test

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets"
)

func TestUpgrade(t *testing.T) {
	c, s := directPair(t)
	t.Log(c.Stats())
	t.Log(s.Stats())
}

// addrCounter is a TCP connection that counts how often it is asked for its addresses.
type addrCounter struct {
	*net.TCPConn
	asked atomic.Int32
}

func (a *addrCounter) LocalAddr() net.Addr {
	a.asked.Add(1)
	return a.TCPConn.LocalAddr()
}

func (a *addrCounter) RemoteAddr() net.Addr {
	a.asked.Add(1)
	return a.TCPConn.RemoteAddr()
}

// TestAddrOnce: the shadow makes its addresses once. One that exn-go builds into package net
// allocates them, and net/http has a deadline's error with both for each request.
func TestAddrOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tcp, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	shadow := &addrCounter{TCPConn: tcp.(*net.TCPConn)}
	c, err := directsockets.NewConn(shadow, false, directsockets.Config{Off: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := shadow.asked.Load()
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	_, err = c.Read(make([]byte, 1))
	var op *net.OpError
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &op) {
		t.Fatalf("got %v, want a deadline's *net.OpError", err)
	}
	if op.Net != "tcp" || op.Source.String() != tcp.LocalAddr().String() || op.Addr.String() != ln.Addr().String() {
		t.Errorf("the error is of %v from %v to %v", op.Net, op.Source, op.Addr)
	}
	if asked := shadow.asked.Load() - before; asked != 0 {
		t.Errorf("the shadow was asked for its addresses %d more times", asked)
	}
}

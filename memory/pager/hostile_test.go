package pager

import (
	"path/filepath"
	"testing"
	"time"

	"exnet/node/rpc/rpctest"
)

// TestSlowToClose has strangers send descriptors that take an hour to close, one by one, and
// more than a message of the protocol has: the Pager goes on serving others.
func TestSlowToClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pager")
	g, err := New(Config{Local: Smallest, Store: Memory(Smallest), Size: Smallest, Socket: path, Say: func(string) {}, Full: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 6} {
		var fds []int
		for range n {
			fd, _ := rpctest.Lingers(t)
			fds = append(fds, fd)
		}
		rpctest.Give(t, path, []byte("no hello"), fds...)
	}
	conn := rpctest.Give(t, path, []byte("no hello"))
	served := make(chan error, 1)
	go func() { served <- g.Run() }() // only now: whoever closes last takes an hour
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 64)); err != nil || n != welcomeLen {
		t.Errorf("%d bytes, %v: it serves nobody while it closes a stranger's socket", n, err)
	}
	g.Finish()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

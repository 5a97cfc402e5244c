package rpc

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// An error in a row of errors is told once, and connections come after it.
func TestAccept(t *testing.T) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() {
		ln.SetDeadline(time.Time{})
		if c, err := net.Dial("unix", ln.Addr().String()); err != nil {
			t.Error(err)
			ln.Close()
		} else {
			c.Close()
		}
	})
	failed, conns := 0, 0
	for c := range Accept(t.Context(), ln, time.Millisecond, func(error) { failed++ }) {
		conns++
		c.Close()
		ln.Close()
	}
	if failed != 1 || conns != 1 {
		t.Errorf("%d errors told, %d connections", failed, conns)
	}
}

package control

import (
	"net"
	"path/filepath"
	"testing"
)

// A broker that ends before it has answered is left out, whether it had accepted or not.
func TestBrokerEnding(t *testing.T) {
	for _, accepts := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "1"+BrokerSuffix)
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan error, 1)
		go func() {
			_, err := askBroker(path, nil, replyTime)
			asked <- err
		}()
		if accepts {
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		ln.Close()
		if err := <-asked; !ending(err) {
			t.Errorf("accepted %v: %v", accepts, err)
		}
	}
}

// So it is of one that is asked something.
func TestBrokerEndingAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1"+directSuffix)
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			conn.Close()
		}
	}()
	for range 100 { // it may end before it is asked, or after
		if _, err := askBroker(path, &Request{Op: OpDirect}, replyTime); !ending(err) {
			t.Fatal(err)
		}
	}
}

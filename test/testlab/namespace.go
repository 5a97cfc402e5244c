package testlab

import (
	"errors"
	"testing"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

// LoopbackNS makes a network namespace whose loopback interface is up, and which goes when the
// test ends.
func LoopbackNS(t testing.TB) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	conn, err := hostnet.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.LoopbackUp(), conn.Close()); err != nil {
		t.Fatal(err)
	}
	return ns
}

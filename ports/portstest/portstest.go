// Package portstest speaks to the ports of a node as a process does, for tests.
package portstest

import (
	"net"
	"testing"
	"time"

	"exnet/fabric/link/attach/wire"
)

// Ask sends a message to the node and returns the answer, without its descriptors.
func Ask(tb testing.TB, conn *net.UnixConn, m wire.Message) (r wire.Message) {
	tb.Helper()
	conn.SetDeadline(time.Now().Add(time.Minute))
	b, _ := m.AppendBinary(nil) // it does not fail
	if _, err := conn.Write(b); err != nil {
		tb.Fatal(err)
	}
	buf := make([]byte, wire.MessageSize)
	for {
		n, err := conn.Read(buf)
		if err == nil {
			err = r.UnmarshalBinary(buf[:n])
		}
		if err != nil {
			tb.Fatal(err)
		}
		if r.Op != wire.OpFlow && r.Op != wire.OpGone { // the node sends these unasked
			return r
		}
	}
}

package tcpbench

import (
	"fmt"
	"io"
	"net/netip"
)

// Transport is what connections are made with.
type Transport string

// Kernel is TCP over the kernel's sockets.
const Kernel Transport = ""

// isBlocking says that its calls block in the kernel, without the poller of the Go runtime.
func (t Transport) isBlocking() bool { return t != GoNet && t != Direct && t != ZeroCopy }

// conn is a connection that is measured. Its Read and Write block. It may be an optioner, a
// bufferer and a shadower, too.
type conn = io.ReadWriteCloser

// optioner is a conn with options. One of somebody else's making keeps those that it has.
type optioner interface {
	noDelay() error      // turns Nagle's algorithm off
	resetOnClose() error // what is under way at Close is not wanted
}

// bufferer is a conn that has its messages in memory of its own.
type bufferer interface {
	// buffer returns memory for n bytes that its Read or Write then take.
	buffer(n int) ([]byte, error)
}

// shadower is a conn that can carry its bytes in two ways.
type shadower interface {
	// shadow returns how many bytes have gone over TCP, in both directions, and why.
	shadow() (bytes uint64, why string)
	// settled reports whether they take the other way now, or never will.
	settled() bool
}

// listener is where connections come in.
type listener interface {
	accept() (conn, error)
	Close() error
}

// transport makes connections.
type transport struct {
	listen func(j job) (listener, netip.AddrPort, error)
	dial   func(j job) (conn, error)
}

// transports are those that there are.
var transports = map[Transport]transport{
	Kernel: {
		listen: func(j job) (listener, netip.AddrPort, error) {
			s, addr, err := listenAt(j.Address, backlogOf(j.Spec), j.socketOptions())
			return s, addr, err
		},
		dial: func(j job) (conn, error) { return connectTo(j.Address, j.socketOptions()) },
	},
}

// transportOf returns the job's transport.
func (j job) transportOf() (transport, error) {
	t, ok := transports[j.Transport]
	if !ok {
		return t, fmt.Errorf("unknown transport %q", j.Transport)
	}
	return t, nil
}

// backlogOf returns how many connections may wait to be accepted.
func backlogOf(s Spec) int { return max(s.Streams, 128) }

// prepareConn sets the options of a new connection.
func (j job) prepareConn(c conn) error {
	o, ok := c.(optioner)
	if !ok {
		return nil
	}
	if !j.Nagle() {
		if err := o.noDelay(); err != nil {
			return err
		}
	}
	if j.oneWay() && !j.isSending() {
		return o.resetOnClose()
	}
	return nil
}

// messageBuffer returns a buffer for messages over c.
func (j job) messageBuffer(c io.ReadWriter, n int) ([]byte, error) {
	if b, ok := c.(bufferer); ok {
		return b.buffer(n)
	}
	return make([]byte, n), nil
}

package tcpbench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// GoNet is TCP by package net: the kernel's, with the poller of the Go runtime
// between, as Go programs have it. It tells what of a direct socket's time is Go's.
const GoNet Transport = "net"

func init() {
	transports[GoNet] = transport{
		listen: func(j job) (listener, netip.AddrPort, error) {
			lc := net.ListenConfig{Control: j.socketOptions().setOptions}
			lc.SetMultipathTCP(false) // nor has it who connects
			l, err := lc.Listen(context.Background(), "tcp", j.Address.String())
			if err != nil {
				return nil, netip.AddrPort{}, fmt.Errorf("listening on %v: %w", j.Address, err)
			}
			port := l.Addr().(*net.TCPAddr).AddrPort().Port()
			return netListener{l}, netip.AddrPortFrom(j.Address.Addr(), port), nil
		},
		dial: func(j job) (conn, error) {
			d := net.Dialer{Control: j.socketOptions().setOptions}
			c, err := d.Dial("tcp", j.Address.String())
			if err != nil {
				return nil, fmt.Errorf("connecting to %v: %w", j.Address, err)
			}
			return netConn{c.(*net.TCPConn)}, nil
		},
	}
}

type netListener struct{ net.Listener }

func (l netListener) accept() (conn, error) {
	c, err := l.Accept()
	if err != nil {
		return nil, fmt.Errorf("accepting a connection: %w", err)
	}
	return netConn{c.(*net.TCPConn)}, nil
}

type netConn struct{ *net.TCPConn }

func (c netConn) noDelay() error      { return nil } // package net has turned it off
func (c netConn) resetOnClose() error { return c.SetLinger(0) }

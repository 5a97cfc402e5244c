package tcpbench

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
)

// AddTransport adds a transport between two processes of a host, which meet by a Unix socket
// (SOCK_SEQPACKET). In each of them open makes its end of the connection of that socket, which
// it takes, even if it fails. The calls of the connection block or poll, and do not sleep in the
// poller of the Go runtime.
func AddTransport(name Transport, open func(s Spec, meet *net.UnixConn, listens bool) (io.ReadWriteCloser, error)) {
	made := func(j job, meet *net.UnixConn, err error) (conn, error) {
		if err != nil {
			return nil, fmt.Errorf("meeting the other end: %w", err)
		}
		return open(j.Spec, meet, j.Listens)
	}
	transports[name] = transport{
		listen: func(j job) (listener, netip.AddrPort, error) {
			address := netip.AddrPortFrom(anyAddress(), 0)
			l, err := net.ListenUnix("unixpacket", meetingName(address))
			if err != nil {
				return nil, address, fmt.Errorf("listening for the other end: %w", err)
			}
			return meeting{l, func() (conn, error) {
				c, err := l.AcceptUnix()
				return made(j, c, err)
			}}, address, nil
		},
		dial: func(j job) (conn, error) {
			c, err := net.DialUnix("unixpacket", nil, meetingName(j.Address))
			return made(j, c, err)
		},
	}
}

// meeting is where ends meet.
type meeting struct {
	*net.UnixListener
	next func() (conn, error)
}

func (m meeting) accept() (conn, error) { return m.next() }

// anyAddress returns an address that nobody else has: a job's is one of IP.
func anyAddress() netip.Addr {
	var a [16]byte
	for i := range a {
		a[i] = byte(rand.Uint32())
	}
	return netip.AddrFrom16(a)
}

// meetingName is the abstract name for an address. It goes with the process.
func meetingName(a netip.AddrPort) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@dsbench meets " + a.Addr().String()}
}

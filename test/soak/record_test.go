package soak

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// Phases of a record.
const (
	phaseConnect  = "connect"     // it did not come to be
	phaseData     = "established" // it ended with an error
	phaseDatagram = "datagram"    // one was not answered
	phaseDone     = "done"        // a direct socket that went as it should
)

// record is a connection that did not go as it should, or a direct socket that lived long enough
// for a fault.
type record struct {
	Kind    string
	Phase   string
	Client  int    // node
	Server  int    // node
	Program string // at the server's end
	By      string `json:",omitempty"` // who tells: roleServer, or else the client
	Start   time.Time
	End     time.Time
	Direct  time.Time // both directions are direct from then on at the latest; zero: never
	Err     string    `json:",omitempty"`
	Silent  bool      `json:",omitempty"` // the client had not received a byte
	Corrupt bool      `json:",omitempty"` // something came that was not sent
	Lost    uint64    `json:",omitempty"` // bytes that an end of file left out

	heard *atomic.Bool // see timedConn
}

// wrong notes an error in r.
func (r *record) wrong(err error, missing int64) {
	r.End = time.Now()
	r.Err = err.Error()
	r.Silent = r.heard != nil && !r.heard.Load()
	r.Corrupt = errors.Is(err, errMismatch) || errors.Is(err, errLong)
	if errors.Is(err, errShort) {
		r.Lost = uint64(missing)
	}
}

// addr returns the address of a node.
func addr(node int, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte{0xfd, 0x77, 15: byte(node)})
	}
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(node)})
}

// nodeOf is the node that has an address.
func nodeOf(a net.Addr) int {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return 0
	}
	b := t.AddrPort().Addr().Unmap().AsSlice()
	return int(b[len(b)-1])
}

// Ports of a node's servers.
const (
	portPlain = 7001 // streams and requests over TCP
	portDS    = 7002 // the same, direct sockets
	portHTTP  = 7003 // direct sockets
	portEcho  = 7004 // everything comes back; direct sockets
	portRun   = 7005 // the same, by a program under exn-run
	portUDP   = 7006 // everything comes back
	portGroup = 7007 // multicast
	portRedis = 6379
)

// direct returns what a connection has carried in memory, if it is a direct socket.
func direct(c net.Conn) (in uint64, both bool) {
	d, ok := c.(*directsockets.Conn)
	if !ok {
		return 0, false
	}
	s := d.Stats()
	return s.Counters[segment.SentDirect] + s.Counters[segment.ReceivedDirect], s.Direct()
}

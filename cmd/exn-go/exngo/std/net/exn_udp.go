//go:build exngo

package net

import (
	"context"
	"net/netip"
	"os"
	"syscall"
	"time"

	"internal/exnet/directsockets/udp"
	"internal/exnet/godirect"
)

// exnPacket is what a UDPConn has beyond the release's.
type exnPacket struct {
	direct *udp.Socket // nil: everything goes by the kernel
}

// exnBeginUDP has datagrams of a new socket go through memory when they can.
func exnBeginUDP(c *UDPConn) {
	if !godirect.On() || !c.ok() {
		return
	}
	local, ok := c.fd.laddr.(*UDPAddr)
	if !ok {
		return
	}
	var remote netip.AddrPort
	if r, ok := c.fd.raddr.(*UDPAddr); ok {
		remote = r.AddrPort()
	}
	c.exn.direct = godirect.Datagrams(newRawConn(c.fd), local.AddrPort(), remote)
}

func (sd *sysDialer) dialUDP(ctx context.Context, laddr, raddr *UDPAddr) (*UDPConn, error) {
	c, err := sd.exnPlainDialUDP(ctx, laddr, raddr)
	if err == nil {
		exnBeginUDP(c)
	}
	return c, err
}

func (sl *sysListener) listenUDP(ctx context.Context, laddr *UDPAddr) (*UDPConn, error) {
	c, err := sl.exnPlainListenUDP(ctx, laddr)
	if err == nil {
		exnBeginUDP(c)
	}
	return c, err
}

// exnOn reports whether datagrams may go through memory.
func (c *UDPConn) exnOn() bool { return c != nil && c.exn.direct != nil }

// exnRemote is where the socket is connected to.
func (c *UDPConn) exnRemote() (to netip.AddrPort) {
	if r, ok := c.fd.raddr.(*UDPAddr); ok {
		to = r.AddrPort()
	}
	return to
}

// exnWithin is what an error of Receive is about: the callers say the rest.
func exnWithin(err error) error {
	if e, ok := err.(*OpError); ok {
		return e.Err
	}
	return err
}

// Read implements the [Conn] Read method.
func (c *UDPConn) Read(b []byte) (int, error) {
	if !c.exnOn() {
		if c == nil {
			return 0, syscall.EINVAL
		}
		return c.conn.Read(b)
	}
	if d, ok := c.exn.direct.Receive(b); ok && d.Err != nil {
		return 0, &OpError{Op: "read", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: exnWithin(d.Err)}
	} else if ok {
		return d.N, nil
	}
	n, err := c.conn.Read(b)
	var from netip.AddrPort
	if err == nil {
		from = c.exnRemote()
	}
	c.exn.direct.Received(from)
	return n, err
}

// Write implements the [Conn] Write method.
func (c *UDPConn) Write(b []byte) (int, error) {
	if !c.exnOn() {
		if c == nil {
			return 0, syscall.EINVAL
		}
		return c.conn.Write(b)
	}
	to := c.exnRemote()
	if !to.IsValid() {
		return c.conn.Write(b)
	}
	k, sent := c.exn.direct.Send(b, to, nil)
	if sent {
		return len(b), nil
	}
	n, err := c.conn.Write(b)
	k.Ended(n, err)
	return n, err
}

func (c *UDPConn) readFrom(b []byte, addr *UDPAddr) (int, *UDPAddr, error) {
	u := c.exn.direct
	if u == nil {
		return c.exnPlainReadFrom(b, addr)
	}
	if d, ok := u.Receive(b); ok && d.Err != nil {
		return 0, nil, exnWithin(d.Err)
	} else if ok {
		from := u.Own(d.From)
		*addr = UDPAddr{IP: from.Addr().AsSlice(), Port: int(from.Port())}
		return d.N, addr, nil
	}
	n, got, err := c.exnPlainReadFrom(b, addr)
	var from netip.AddrPort
	if err == nil && got != nil {
		from = got.AddrPort()
	}
	u.Received(from)
	return n, got, err
}

func (c *UDPConn) readFromAddrPort(b []byte) (n int, addr netip.AddrPort, err error) {
	u := c.exn.direct
	if u == nil {
		return c.exnPlainReadFromAddrPort(b)
	}
	if d, ok := u.Receive(b); ok {
		return d.N, u.Own(d.From), exnWithin(d.Err)
	}
	n, addr, err = c.exnPlainReadFromAddrPort(b)
	u.Received(addr)
	return n, addr, err
}

func (c *UDPConn) readMsg(b, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error) {
	u := c.exn.direct
	if u == nil {
		return c.exnPlainReadMsg(b, oob)
	}
	if d, ok := u.Receive(b); ok && d.Err != nil {
		return 0, 0, 0, netip.AddrPort{}, exnWithin(d.Err)
	} else if ok {
		oobn, flags = u.PutControl(oob, d)
		if d.N < d.Len {
			flags |= syscall.MSG_TRUNC
		}
		return d.N, oobn, flags, u.Own(d.From), nil
	}
	n, oobn, flags, addr, err = c.exnPlainReadMsg(b, oob)
	from := addr
	if err != nil {
		from = netip.AddrPort{}
	}
	u.Received(from)
	return n, oobn, flags, addr, err
}

func (c *UDPConn) writeTo(b []byte, addr *UDPAddr) (int, error) {
	u := c.exn.direct
	if u == nil || addr == nil || addr.Zone != "" || c.fd.isConnected || !addr.AddrPort().IsValid() {
		return c.exnPlainWriteTo(b, addr)
	}
	to := addr.AddrPort()
	k, sent := u.Send(b, to, nil)
	if sent {
		return len(b), nil
	}
	n, err := c.exnPlainWriteTo(b, addr)
	k.Ended(n, err)
	return n, err
}

func (c *UDPConn) writeToAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	u := c.exn.direct
	if u == nil || c.fd.isConnected || !addr.IsValid() {
		return c.exnPlainWriteToAddrPort(b, addr)
	}
	k, sent := u.Send(b, addr, nil)
	if sent {
		return len(b), nil
	}
	n, err := c.exnPlainWriteToAddrPort(b, addr)
	k.Ended(n, err)
	return n, err
}

func (c *UDPConn) writeMsg(b, oob []byte, addr *UDPAddr) (n, oobn int, err error) {
	u := c.exn.direct
	if u == nil || addr != nil && (addr.Zone != "" || !addr.AddrPort().IsValid()) {
		return c.exnPlainWriteMsg(b, oob, addr)
	}
	return c.exnWriteMsg(b, oob, addr.AddrPort(), func() (int, int, error) { return c.exnPlainWriteMsg(b, oob, addr) })
}

func (c *UDPConn) writeMsgAddrPort(b, oob []byte, addr netip.AddrPort) (n, oobn int, err error) {
	if c.exn.direct == nil {
		return c.exnPlainWriteMsgAddrPort(b, oob, addr)
	}
	return c.exnWriteMsg(b, oob, addr, func() (int, int, error) { return c.exnPlainWriteMsgAddrPort(b, oob, addr) })
}

func (c *UDPConn) exnWriteMsg(b, oob []byte, to netip.AddrPort, plain func() (n, oobn int, err error)) (n, oobn int, err error) {
	if to.IsValid() == c.fd.isConnected { // an error
		return plain()
	}
	if c.fd.isConnected {
		to = c.exnRemote()
	}
	k, sent := c.exn.direct.Send(b, to, udp.ParseControl(oob))
	if sent {
		return len(b), len(oob), nil
	}
	n, oobn, err = plain()
	k.Ended(n, err)
	return n, oobn, err
}

// Close closes the connection.
func (c *UDPConn) Close() error {
	if c == nil {
		return syscall.EINVAL
	}
	if c.exnOn() {
		c.exn.direct.Close()
	}
	return c.conn.Close()
}

// SetDeadline implements the [Conn] SetDeadline method.
func (c *UDPConn) SetDeadline(t time.Time) error {
	if c == nil {
		return syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.SetDeadline(t)
	}
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements the [Conn] SetReadDeadline method.
func (c *UDPConn) SetReadDeadline(t time.Time) error {
	if c == nil {
		return syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.SetReadDeadline(t)
	}
	err := c.conn.SetReadDeadline(t)
	if err == nil {
		c.exn.direct.SetReadDeadline(t)
	}
	return err
}

// SetWriteDeadline implements the [Conn] SetWriteDeadline method.
func (c *UDPConn) SetWriteDeadline(t time.Time) error {
	if c == nil {
		return syscall.EINVAL
	}
	err := c.conn.SetWriteDeadline(t)
	if err == nil && c.exnOn() {
		c.exn.direct.SetWriteDeadline(t)
	}
	return err
}

// SetReadBuffer sets the size of the operating system's receive buffer associated with the
// connection, which bounds what waits in memory, too.
func (c *UDPConn) SetReadBuffer(bytes int) error {
	if c == nil {
		return syscall.EINVAL
	}
	err := c.conn.SetReadBuffer(bytes)
	if c.exnOn() {
		c.exn.direct.Changed()
	}
	return err
}

// File returns a copy of the underlying [os.File]. All datagrams go by the kernel from then on.
func (c *UDPConn) File() (f *os.File, err error) {
	if c == nil {
		return nil, syscall.EINVAL
	}
	if c.exnOn() {
		c.exn.direct.Leave()
	}
	return c.conn.File()
}

// exnUDPRaw is the descriptor of a UDPConn.
type exnUDPRaw struct {
	*rawConn
	udp *udp.Socket
}

func (c *UDPConn) exnSyscallConn() (syscall.RawConn, error) {
	return exnUDPRaw{newRawConn(c.fd), c.exn.direct}, nil
}

// Control implements [syscall.RawConn]: f may change options.
func (r exnUDPRaw) Control(f func(uintptr)) error {
	defer r.udp.Changed()
	return r.rawConn.Control(f)
}

// Read implements [syscall.RawConn]: all datagrams go by the kernel from now on.
func (r exnUDPRaw) Read(f func(uintptr) bool) error {
	r.udp.Leave()
	return r.rawConn.Read(f)
}

// Write implements [syscall.RawConn]: all datagrams go by the kernel from now on.
func (r exnUDPRaw) Write(f func(uintptr) bool) error {
	r.udp.Leave()
	return r.rawConn.Write(f)
}

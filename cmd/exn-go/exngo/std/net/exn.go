//go:build exngo

// This file is a part of package net in programs that exn-go builds. The functions
// that it calls exnPlain… are those of the same name without that in the Go release.

package net

import (
	"context"
	exnet "internal/exnet/net"
	"internal/poll"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"internal/exnet/directsockets"
	"internal/exnet/godirect"
)

// exnConn is what a TCPConn has beyond the release's.
type exnConn struct {
	direct *directsockets.Conn // nil: plain TCP, for good
}

// exnListener is what a TCPListener has beyond the release's.
type exnListener struct {
	hide func() // nil: not announced
}

// exnShadow is the TCP connection below a direct one.
type exnShadow struct{ conn }

func exnAddr(a Addr) exnet.Addr {
	if t, ok := a.(*TCPAddr); ok && t != nil {
		return &exnet.TCPAddr{IP: exnet.IP(t.IP), Port: t.Port, Zone: t.Zone}
	}
	return &exnet.UnixAddr{} // no TCP: godirect leaves it alone
}

func (s *exnShadow) LocalAddr() exnet.Addr  { return exnAddr(s.fd.laddr) }
func (s *exnShadow) RemoteAddr() exnet.Addr { return exnAddr(s.fd.raddr) }

func (s *exnShadow) SyscallConn() (syscall.RawConn, error) { return newRawConn(s.fd), nil }

func (s *exnShadow) CloseRead() error {
	if err := s.fd.closeRead(); err != nil {
		return s.opError("close", err)
	}
	return nil
}

func (s *exnShadow) CloseWrite() error {
	if err := s.fd.closeWrite(); err != nil {
		return s.opError("close", err)
	}
	return nil
}

func (s *exnShadow) SetLinger(sec int) error {
	if err := setLinger(s.fd, sec); err != nil {
		return &OpError{Op: "set", Net: s.fd.net, Source: s.fd.laddr, Addr: s.fd.raddr, Err: err}
	}
	return nil
}

// WriteBuffers writes a list at once.
func (s *exnShadow) WriteBuffers(v *exnet.Buffers) (int64, error) {
	return s.writeBuffers((*Buffers)(v))
}

// WroteBuffers is told about a write of a list that went another way.
func (s *exnShadow) WroteBuffers(n int) { poll.TestHookDidWritev(n) }

func (s *exnShadow) opError(op string, err error) error {
	return &OpError{Op: op, Net: s.fd.net, Source: s.fd.laddr, Addr: s.fd.raddr, Err: err}
}

// exnBegin has a new connection be direct when it can.
func exnBegin(c *TCPConn, server bool) {
	if godirect.On() && c.ok() {
		c.exn.direct = godirect.Begin(&exnShadow{conn{c.fd}}, server)
	}
}

// exnShow announces a new listener.
func exnShow(ln *TCPListener) {
	if godirect.On() && ln.ok() {
		if a, ok := ln.fd.laddr.(*TCPAddr); ok {
			ln.exn.hide = godirect.Listen(newRawConn(ln.fd), a.AddrPort())
		}
	}
}

func (sd *sysDialer) doDialTCPProto(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error) {
	c, err := sd.exnPlainDoDialTCPProto(ctx, laddr, raddr, proto)
	if err == nil && proto == 0 {
		exnBegin(c, false)
	}
	return c, err
}

func (ln *TCPListener) accept() (*TCPConn, error) {
	c, err := ln.exnPlainAccept()
	if err == nil {
		exnBegin(c, true)
	}
	return c, err
}

func (sl *sysListener) listenTCPProto(ctx context.Context, laddr *TCPAddr, proto int) (*TCPListener, error) {
	ln, err := sl.exnPlainListenTCPProto(ctx, laddr, proto)
	if err == nil {
		exnShow(ln)
	}
	return ln, err
}

func fileListener(f *os.File) (Listener, error) {
	ln, err := exnPlainFileListener(f)
	if t, ok := ln.(*TCPListener); ok && err == nil {
		exnShow(t)
	}
	return ln, err
}

func (ln *TCPListener) close() error {
	if ln.exn.hide != nil {
		ln.exn.hide()
	}
	return ln.exnPlainClose()
}

// exnOn reports whether the methods of a connection are those of a direct one.
func (c *TCPConn) exnOn() bool { return c != nil && c.exn.direct != nil }

// exnError is an error of directsockets as net's.
func (c *TCPConn) exnError(err error) error {
	if err == nil {
		return nil
	}
	e, ok := err.(*exnet.OpError)
	if !ok {
		return err
	}
	own := &OpError{Op: e.Op, Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: e.Err}
	if e.Source == nil { // what needs no peer: deadlines
		own.Source, own.Addr = nil, c.fd.laddr
	}
	return own
}

// exnCause is what the release's own functions below a method would have returned.
func exnCause(err error) error {
	switch e := err.(type) {
	case *exnet.OpError:
		return e.Err
	case *OpError:
		return e.Err
	}
	return err
}

// Read implements the [Conn] Read method.
func (c *TCPConn) Read(b []byte) (int, error) {
	if !c.exnOn() {
		if c == nil {
			return 0, syscall.EINVAL
		}
		return c.conn.Read(b)
	}
	n, err := c.exn.direct.Read(b)
	if err != nil {
		err = c.exnError(err)
	}
	return n, err
}

// Write implements the [Conn] Write method.
func (c *TCPConn) Write(b []byte) (int, error) {
	if !c.exnOn() {
		if c == nil {
			return 0, syscall.EINVAL
		}
		return c.conn.Write(b)
	}
	n, err := c.exn.direct.Write(b)
	if err != nil {
		err = c.exnError(err)
	}
	return n, err
}

// Close closes the connection.
func (c *TCPConn) Close() error {
	if c == nil {
		return syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.Close()
	}
	return c.exnError(c.exn.direct.Close())
}

// SetDeadline implements the [Conn] SetDeadline method.
func (c *TCPConn) SetDeadline(t time.Time) error {
	if c == nil {
		return syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.SetDeadline(t)
	}
	return c.exnError(c.exn.direct.SetDeadline(t))
}

// SetReadDeadline implements the [Conn] SetReadDeadline method.
func (c *TCPConn) SetReadDeadline(t time.Time) error {
	if c == nil {
		return syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.SetReadDeadline(t)
	}
	return c.exnError(c.exn.direct.SetReadDeadline(t))
}

// SetWriteDeadline implements the [Conn] SetWriteDeadline method.
func (c *TCPConn) SetWriteDeadline(t time.Time) error {
	if c == nil {
		return syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.SetWriteDeadline(t)
	}
	return c.exnError(c.exn.direct.SetWriteDeadline(t))
}

// File returns a copy of the underlying [os.File]. The connection goes back to TCP
// before, for good: who has a descriptor only has TCP.
func (c *TCPConn) File() (f *os.File, err error) {
	if c == nil {
		return nil, syscall.EINVAL
	}
	if !c.exnOn() {
		return c.conn.File()
	}
	f, err = c.exn.direct.File()
	return f, c.exnError(err)
}

func (c *TCPConn) writeBuffers(v *Buffers) (int64, error) {
	if !c.exnOn() {
		if c == nil {
			return 0, syscall.EINVAL
		}
		return c.conn.writeBuffers(v)
	}
	n, err := c.exn.direct.WriteBuffers((*exnet.Buffers)(v))
	if err != nil {
		err = &OpError{Op: "writev", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: exnCause(err)}
	}
	return n, err
}

func (c *TCPConn) exnReadFrom(r io.Reader) (n int64, err error) {
	if src := exnSource(r); src != nil {
		n, err = exnSplice(c.fd, src, func() (int64, error) { return c.exn.direct.ReadFrom(r) })
	} else {
		n, err = c.exn.direct.ReadFrom(r)
		if exnIsFile(r) {
			poll.TestHookDidSendFile(&c.fd.pfd, 0, n, err, true)
		}
	}
	if err != nil && err != io.EOF {
		err = &OpError{Op: "readfrom", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: c.exnError(err)}
	}
	return n, err
}

func (c *TCPConn) exnWriteTo(w io.Writer) (n int64, err error) {
	if dst := exnStream(w); dst != nil {
		n, err = exnSplice(dst, c.fd, func() (int64, error) { return c.exn.direct.WriteTo(w) })
	} else {
		n, err = c.exn.direct.WriteTo(w)
	}
	if err != nil && err != io.EOF {
		err = &OpError{Op: "writeto", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: c.exnError(err)}
	}
	return n, err
}

// exnStream is the stream socket that x is; nil: it is none.
func exnStream(x any) *netFD {
	switch v := x.(type) {
	case *TCPConn:
		if v.ok() {
			return v.fd
		}
	case tcpConnWithoutWriteTo:
		if v.ok() {
			return v.fd
		}
	case *UnixConn:
		if v.ok() && v.fd.net == "unix" {
			return v.fd
		}
	}
	return nil
}

// exnSource is the stream socket that r reads from; nil: none.
func exnSource(r io.Reader) *netFD {
	if l, ok := r.(*io.LimitedReader); ok {
		if l.N <= 0 {
			return nil
		}
		r = l.R
	}
	return exnStream(r)
}

// exnIsFile reports whether r reads a file, which goes to the peer without a buffer between.
func exnIsFile(r io.Reader) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		r = l.R
	}
	_, ok := r.(interface {
		syscall.Conn
		Stat() (os.FileInfo, error)
	})
	return ok
}

// exnSplices has the copies that stand for a splice, by the descriptor that they write to,
// which is one of that call's only.
var exnSplices sync.Map // *poll.FD to func() (int64, error)

// exnSplice is the splice from src to dst, one of which is a direct connection or could be: copy
// does it. pollSplice is called, as package net does and its tests expect.
func exnSplice(dst, src *netFD, copy func() (int64, error)) (int64, error) {
	to, from := exnNumber(dst), exnNumber(src)
	exnSplices.Store(to, copy)
	defer exnSplices.Delete(to)
	n, _, err := pollSplice(to, from, 1<<63-1)
	return n, err
}

// exnNumber is an FD that has the number of a descriptor, and nothing else.
func exnNumber(fd *netFD) *poll.FD {
	number := &poll.FD{Sysfd: -1}
	_ = fd.pfd.RawControl(func(d uintptr) { number.Sysfd = int(d) }) // or it is closed
	return number
}

// exnPollSplice is what pollSplice is in the beginning, in place of the kernel's.
func exnPollSplice(kernel func(dst, src *poll.FD, remain int64) (int64, bool, error)) func(dst, src *poll.FD, remain int64) (int64, bool, error) {
	return func(dst, src *poll.FD, remain int64) (int64, bool, error) {
		if f, ok := exnSplices.Load(dst); ok {
			n, err := f.(func() (int64, error))()
			return n, true, err
		}
		return kernel(dst, src, remain)
	}
}

// exnSpliceFrom is spliceFrom for bytes that may not be in the socket of r.
func exnSpliceFrom(c *netFD, r io.Reader) (int64, error, bool) {
	src := exnSource(r)
	if src == nil {
		return 0, nil, false
	}
	n, err := exnSplice(c, src, func() (int64, error) { return io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{r}) })
	return n, err, true
}

func (c *TCPConn) exnSyscallConn() (syscall.RawConn, error) {
	raw, err := c.exn.direct.SyscallConn()
	if err != nil {
		return nil, c.exnError(err)
	}
	return exnRawConn{raw, c}, nil
}

// exnRawConn is a connection's [syscall.RawConn], whose errors are net's.
type exnRawConn struct {
	raw syscall.RawConn
	c   *TCPConn
}

func (r exnRawConn) Control(f func(uintptr)) error    { return r.c.exnError(r.raw.Control(f)) }
func (r exnRawConn) Read(f func(uintptr) bool) error  { return r.c.exnError(r.raw.Read(f)) }
func (r exnRawConn) Write(f func(uintptr) bool) error { return r.c.exnError(r.raw.Write(f)) }

func (c *TCPConn) exnCloseRead() error        { return c.exnError(c.exn.direct.CloseRead()) }
func (c *TCPConn) exnCloseWrite() error       { return c.exnError(c.exn.direct.CloseWrite()) }
func (c *TCPConn) exnSetLinger(sec int) error { return c.exnError(c.exn.direct.SetLinger(sec)) }

// exnFrom reports whether the bytes of r may not be in its socket.
func exnFrom(r io.Reader) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		r = l.R
	}
	switch v := r.(type) {
	case *TCPConn:
		return v.exnOn()
	case tcpConnWithoutWriteTo:
		return v.TCPConn.exnOn()
	}
	return false
}

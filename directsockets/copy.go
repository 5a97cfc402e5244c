package directsockets

import (
	"bytes"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"

	"exnet/directsockets/segment"
	"exnet/foreign"

	"golang.org/x/sys/unix"
)

const (
	// copyChunk is how much ReadFrom and WriteTo move at a time.
	copyChunk = 64 << 10
	// lendLeast is the piece of the peer's memory that WriteTo hands out as it is;
	// smaller ones are gathered first.
	lendLeast = 4 << 10
)

var copyBuffers = sync.Pool{New: func() any { return new([copyChunk]byte) }}

// ReadFrom implements io.ReaderFrom: it writes all that r has. Files and sockets read straight into
// the memory from which the peer takes the bytes, and on the shadow the kernel sends files. Other
// writes wait meanwhile, as with package net.
func (c *Conn) ReadFrom(r io.Reader) (sum int64, err error) {
	buf := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(buf)
	some := c.readFromSome
	if !readsAlone(r) {
		some = c.readFromAny
	}
	for err == nil {
		var n int64
		n, err = some(r, buf[:])
		sum += n
		if err == errAway {
			some, err = c.readFromAny, nil
		}
	}
	return sum, c.copyError("readfrom", err)
}

// copyError is the error of ReadFrom or WriteTo, as package net wraps it. In a program that exn-go
// built, package net itself does.
func (c *Conn) copyError(op string, err error) error {
	if err == nil || err == io.EOF {
		return nil
	}
	if _, inside := c.shadow.(buffersWriter); inside {
		return err
	}
	return c.opError(op, err)
}

// readsAlone reports whether a Read of r cannot depend on other writes to the
// connection, which wait for it.
func readsAlone(r io.Reader) bool {
	if l, ok := r.(*io.LimitedReader); ok {
		r = l.R
	}
	switch r.(type) {
	case *os.File, *net.TCPConn, *net.UnixConn, *Conn, *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return true
	}
	return asFile(r) != nil
}

// readFromAny moves a piece from a reader that may do anything.
func (c *Conn) readFromAny(r io.Reader, buf []byte) (int64, error) {
	n, err := r.Read(buf)
	if n > 0 {
		k, werr := c.Write(buf[:n])
		if werr != nil {
			return int64(k), werr
		}
	}
	return int64(n), err
}

// readFromSome moves a piece. io.EOF: r has no more.
func (c *Conn) readFromSome(r io.Reader, buf []byte) (int64, error) {
	n, rest, err := c.readFromHere(r, buf)
	if len(rest) > 0 {
		k, werr := c.writeAway(rest)
		if n += int64(k); werr != nil {
			err = werr
		}
	}
	return n, err
}

// readFromHere moves a piece. rest has been read, and is for the substitute.
func (c *Conn) readFromHere(r io.Reader, buf []byte) (n int64, rest []byte, err error) {
	t := &c.tx
	if !t.take() {
		return 0, nil, c.lockError("write")
	}
	closed := false // while r had the lock, which is gone then
	defer func() {
		if !closed {
			c.releaseTX()
		}
	}()
	if _, err := c.writeLocked(nil, 0); err != nil { // deadlines, and what others want
		return 0, nil, c.toldWrite(err)
	}
	switch {
	case t.phase <= txPaused && c.promote():
		return 0, nil, nil
	case t.phase == txDirect && !t.demote:
		n, closed, err = c.readFromDirect(r)
		return n, nil, err
	case t.phase <= txPaused || t.phase == txBack:
		if file, limit := fileOf(r); file != nil && c.tcp != nil {
			c.startSetup(1)
			if n, sent, err := c.sendFile(file, limit); sent {
				return n, nil, c.toldWrite(err)
			}
		}
	}
	t.lend()
	k, rerr := r.Read(buf)
	if closed = !t.back(); closed {
		return 0, nil, c.opError("write", net.ErrClosed)
	}
	if k > 0 {
		w, err := c.writeLocked(buf[:k], 0)
		if n = int64(w); err == errAway {
			rest = buf[w:k]
		} else if err := c.toldWrite(err); err != nil {
			return n, nil, err
		}
	}
	return n, rest, rerr
}

// readFromDirect moves a piece of r straight into the segment. closed: the connection was closed
// meanwhile, and the lock is gone.
func (c *Conn) readFromDirect(r io.Reader) (n int64, closed bool, err error) {
	t := &c.tx
	room, err := t.end.Reserve(copyChunk)
	if err == segment.ErrAgain {
		c.awaitTX(t.endFlags())
		return 0, false, nil
	}
	if err != nil {
		c.leaveDirectTX(err)
		return 0, false, nil
	}
	t.lend()
	k, err := room.FillFrom(r)
	if !t.back() {
		return 0, true, c.opError("write", net.ErrClosed)
	}
	if k > 0 {
		if err := t.end.Commit(k); err != nil {
			c.leaveDirectTX(err)
		}
	}
	return int64(k), false, err
}

// file is an *os.File, or what package os has of one without its WriteTo, which io.Copy
// brings here.
type file interface {
	io.Reader
	syscall.Conn
}

// asFile returns r as a file; nil: it is none. A foreign type that embeds a file may read in its
// own way.
func asFile(r io.Reader) file {
	f, ok := r.(file)
	if _, own := r.(*os.File); !own && ok {
		ok = reflect.TypeOf(r).PkgPath() == "os"
	}
	if !ok {
		return nil
	}
	return f
}

// fileOf is the file that r reads from, and how many bytes of it.
func fileOf(r io.Reader) (f file, limit *io.LimitedReader) {
	if l, ok := r.(*io.LimitedReader); ok {
		return asFile(l.R), l
	}
	return asFile(r), nil
}

// sendFile sends a piece of a file over the shadow, by the kernel. The file's
// position says what has been sent. sent is false if that cannot be done, or the
// file has no more.
func (c *Conn) sendFile(file file, limit *io.LimitedReader) (n int64, sent bool, err error) {
	t := &c.tx
	size := int64(shadowChunk)
	if limit != nil {
		size = min(size, limit.N)
	}
	if t.woken.Load() {
		c.clearWake(&t.half)
		return 0, true, nil
	}
	src, err := file.SyscallConn()
	if err != nil || size <= 0 {
		return 0, false, nil
	}
	var k int
	var serr error
	waitErr := c.raw.Write(func(to uintptr) bool {
		err = src.Control(func(from uintptr) {
			for {
				if k, serr = unix.Sendfile(int(to), int(from), nil, int(size)); serr != unix.EINTR {
					break
				}
			}
		})
		return err != nil || serr != unix.EAGAIN
	})
	switch {
	case waitErr != nil:
		if err = c.shadowError(&t.half, "write", waitErr); err == errWoken {
			return 0, true, nil
		}
		return 0, true, err
	case err != nil || serr == unix.EINVAL || serr == unix.ENOSYS || serr == unix.EOPNOTSUPP || k == 0 && serr == nil:
		return 0, false, nil
	case serr != nil:
		return 0, true, c.opError("write", os.NewSyscallError("sendfile", serr))
	}
	if limit != nil {
		limit.N -= int64(k)
	}
	t.shadow += uint64(k)
	c.count.Add(segment.SentShadow, uint64(k))
	c.sends.Add(1)
	return int64(k), true, nil
}

// readsOnce reports whether a Write of w reads each byte once and decides nothing by
// it, so that it may be given memory that the peer can change.
func readsOnce(w io.Writer) bool {
	switch w.(type) {
	case *os.File, *net.TCPConn, *net.UnixConn, *Conn, *bytes.Buffer:
		return true
	}
	return w == io.Discard
}

// WriteTo implements io.WriterTo: it reads to the end, and writes to files and sockets
// straight from the peer's memory, to others from a copy. Meanwhile other reads wait.
func (c *Conn) WriteTo(w io.Writer) (sum int64, err error) {
	buf := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(buf)
	for err == nil {
		var n int64
		if n, err = c.writeToSome(w, buf[:]); err == errAway {
			var m int64
			s := c.sub.Load()
			m, err = io.Copy(w, s.conn)
			n, err = n+m, c.awayError("read", err)
			if err == nil {
				err = io.EOF
			}
		}
		sum += n
	}
	return sum, c.copyError("writeto", err)
}

// writeToSome moves a piece. io.EOF: there is no more.
func (c *Conn) writeToSome(w io.Writer, buf []byte) (n int64, err error) {
	r := &c.rx
	if !r.take() {
		return 0, c.lockError("read")
	}
	gone := false
	defer func() {
		if !gone {
			c.releaseRX()
		}
	}()
	if _, err := c.readLocked(nil); err != nil { // deadlines, and what others want
		return 0, c.toldRead(err)
	}
	piece, lent := foreign.Memory{}, false
	if r.phase == rxDirect {
		piece, err = r.end.Next()
		if err == segment.ErrAgain {
			return 0, c.awaitRX()
		}
		lent = err == nil && piece.Len() >= lendLeast && readsOnce(w)
	}
	want := piece.Len()
	if !lent {
		if want, err = c.readLocked(buf); err != nil {
			return 0, c.toldRead(err)
		}
	}
	r.lend()
	var k int
	if lent {
		k, err = piece.Drain(w)
	} else {
		k, err = w.Write(buf[:want])
	}
	if !r.back() {
		gone = true
		return int64(k), c.opError("read", net.ErrClosed)
	}
	if lent {
		r.end.Release(k)
	}
	if err == nil && k < want {
		err = io.ErrShortWrite
	}
	return int64(k), err
}

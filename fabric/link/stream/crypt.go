package stream

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"syscall"

	"exnet/fabric/internal/sealed"
)

const (
	// recordLen is how much a record of TLS has, at most.
	recordLen = 16 << 10
	// sealAhead is how much is encrypted before it is sent.
	sealAhead = 128 << 10
)

// crypt is TLS over a socket that the link serves itself.
type crypt struct {
	tls   *tls.Conn
	under *sealed.Conn
	plain []byte      // of a record that is being filled; belongs to the holder of conn.wmu
	more  atomic.Bool // package tls may have more than was received
}

// socket is the connection's as package sealed uses it.
type socket struct{ *conn }

// Send implements sealed.Socket.
func (s socket) Send(p []byte) (int, syscall.Errno) { return rawSend(s.fd, [][]byte{p}, false) }

// Receive implements sealed.Socket.
func (s socket) Receive(p, more []byte) (int, syscall.Errno) {
	return rawReceive(s.fd, [][]byte{p, more})
}

// send encrypts parts, as much as the socket takes soon, and returns how many bytes that was.
// Records are full, except for the last one. EAGAIN: nothing; what was encrypted before goes
// first.
func (k *crypt) send(parts [][]byte) (n int, errno syscall.Errno) {
	if errno := k.under.Flush(); errno != 0 {
		return 0, errno
	}
	for _, p := range parts {
		for len(p) > 0 {
			var m int
			if m, errno = k.sealRecords(p); errno != 0 {
				return 0, errno
			}
			n, p = n+m, p[m:]
			if k.under.Pending() < sealAhead {
				continue
			}
			if errno = k.under.Flush(); errno == syscall.EAGAIN {
				return n, k.sealRecord()
			} else if errno != 0 {
				return 0, errno
			}
		}
	}
	if errno = k.sealRecord(); errno != 0 {
		return 0, errno
	}
	if errno = k.under.Flush(); errno == syscall.EAGAIN {
		errno = 0 // Pending says so
	}
	return n, errno
}

// sealRecords takes the beginning of p: whole records from where it is, or what fills one.
func (k *crypt) sealRecords(p []byte) (n int, errno syscall.Errno) {
	if len(k.plain) == 0 && len(p) >= recordLen {
		n = min(len(p)/recordLen*recordLen, sealAhead)
		return n, k.writeSealed(p[:n])
	}
	n = min(len(p), recordLen-len(k.plain))
	if k.plain = append(k.plain, p[:n]...); len(k.plain) == recordLen {
		errno = k.sealRecord()
	}
	return n, errno
}

// sealRecord encrypts the record that is being filled.
func (k *crypt) sealRecord() (errno syscall.Errno) {
	if len(k.plain) > 0 {
		errno = k.writeSealed(k.plain)
		k.plain = k.plain[:0]
	}
	return errno
}

func (k *crypt) writeSealed(p []byte) syscall.Errno {
	if _, err := k.tls.Write(p); err != nil {
		return syscall.EPIPE // the connection has failed before
	}
	return 0
}

// receive fills place, then more, with what has come. 0 without an error: nothing will.
func (k *crypt) receive(place, more []byte) (n int, errno syscall.Errno) {
	k.more.Store(true)
	for _, to := range [][]byte{place, more} {
		for len(to) > 0 {
			m, err := k.tls.Read(to)
			n, to = n+m, to[m:]
			switch {
			case errors.Is(err, sealed.ErrAgain):
				if k.more.Store(false); n == 0 {
					return 0, syscall.EAGAIN
				}
				return n, 0
			case err != nil:
				return n, 0 // the next call finds the same
			}
		}
	}
	return n, 0
}

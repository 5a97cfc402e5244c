package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"exnet/test/numbered"
)

// What can be wrong with bytes that arrive. They are never the end of an excuse: see judge.
var (
	errMismatch = errors.New("what came is not what was sent")
	errShort    = errors.New("an end of file before all had come")
	errLong     = errors.New("more came than was sent")
)

// pieceLen bounds what is written or read at a time.
const pieceLen = 64 << 10

// stream is a sequence of numbered words that depends on its seed alone, from a byte on.
type stream struct {
	of  numbered.Stream
	at  int64
	buf []byte
}

func newStream(seed uint64) *stream {
	return &stream{of: numbered.Stream{Conn: uint32(seed % (numbered.MaxConn + 1))}}
}

// next lends the next n bytes until the next call.
func (s *stream) next(n int) []byte {
	if cap(s.buf) < n {
		s.buf = make([]byte, n, max(n, pieceLen))
	}
	s.buf = s.buf[:n]
	s.of.Fill(s.buf, s.at)
	s.at += int64(n)
	return s.buf
}

// check compares b with the next bytes.
func (s *stream) check(b []byte) error {
	if err := s.of.Compare(b, s.at); err != nil {
		return fmt.Errorf("%w: %w", errMismatch, err)
	}
	s.at += int64(len(b))
	return nil
}

// send writes n bytes of a stream in pieces of random size. It returns how many it has written.
func send(w io.Writer, s *stream, n int64, rnd *rand.Rand, spoil *spoiler) (sent int64, err error) {
	n = spoil.length(n)
	for sent < n {
		piece := spoil.bytes(s.next(int(min(n-sent, pieceSize(rnd)))))
		k, err := w.Write(piece)
		if sent += int64(k); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// pieceSize is a random size, small ones as probable as large ones.
func pieceSize(rnd *rand.Rand) int64 { return logSize(rnd, pieceLen) }

// logSize is a random size from 1 to limit, whose logarithm is evenly distributed.
func logSize(rnd *rand.Rand, limit int64) int64 {
	bits := 1
	for int64(1)<<bits <= limit {
		bits++
	}
	return min(limit, 1+rnd.Int64N(int64(1)<<rnd.IntN(bits)))
}

// receive reads a stream of n bytes and the end of file after it. It returns how many of the bytes
// came and were right.
func receive(r io.Reader, s *stream, n int64, rnd *rand.Rand) (got int64, err error) {
	buf := make([]byte, pieceLen)
	for {
		k, err := r.Read(buf[:pieceSize(rnd)])
		if got+int64(k) > n {
			return got, fmt.Errorf("%w: more than %d bytes", errLong, n)
		}
		if wrong := s.check(buf[:k]); wrong != nil {
			return got, wrong
		}
		got += int64(k)
		switch {
		case errors.Is(err, io.EOF) && got < n:
			return got, fmt.Errorf("%w: %d of %d bytes", errShort, got, n)
		case errors.Is(err, io.EOF):
			return got, nil
		case err != nil:
			return got, err
		}
	}
}

// receiveFull reads n bytes of a stream, and nothing behind them.
func receiveFull(r io.Reader, s *stream, n int) error {
	buf := make([]byte, n)
	k, err := io.ReadFull(r, buf)
	if wrong := s.check(buf[:k]); wrong != nil {
		return wrong
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %d of %d bytes of a message", errShort, k, n)
	}
	return err
}

// stallTime is how long a connection may stall. TCP takes up to twice the time of all outages
// in a row.
const stallTime = 2 * time.Minute

// timedConn is a connection whose calls end after stallTime.
type timedConn struct {
	net.Conn
	heard *atomic.Bool // a byte has come; nil: nobody asks
}

func (p timedConn) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	n, err := p.Conn.Read(b)
	if n > 0 && p.heard != nil {
		p.heard.Store(true)
	}
	return n, err
}

func (p timedConn) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// closeWrite ends the outbound direction.
func (p timedConn) closeWrite() error {
	return p.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// Modes of a connection.
const (
	modeStream   = 'S' // a stream in each direction, then the end of each
	modeRequests = 'R' // requests and answers
)

// header is what a client sends first.
type header struct {
	Mode  byte
	Abort bool // the client will break off
	Node  byte // of the client
	Seed  uint64
	Up    int64 // bytes from the client to the server; modeStream
	Down  int64
}

const headerLen = 32

func (h header) append(b []byte) []byte {
	b = append(b, 'x', h.Mode, 0, h.Node, 0, 0, 0, 0)
	if h.Abort {
		b[len(b)-6] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, h.Seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Up))
	return binary.LittleEndian.AppendUint64(b, uint64(h.Down))
}

func (h *header) parse(b []byte) error {
	if b[0] != 'x' || b[1] != modeStream && b[1] != modeRequests {
		return fmt.Errorf("%w: a header of % x", errMismatch, b[:headerLen])
	}
	*h = header{Mode: b[1], Abort: b[2] == 1, Node: b[3], Seed: binary.LittleEndian.Uint64(b[8:]),
		Up: int64(binary.LittleEndian.Uint64(b[16:])), Down: int64(binary.LittleEndian.Uint64(b[24:]))}
	return nil
}

// request precedes the bytes of a request, which are the next ones of the client's stream.
type request struct {
	Number uint32
	Len    uint32 // of the request
	Answer uint32 // bytes that are wanted
	Delay  uint32 // milliseconds before the answer
}

const (
	requestLen   = 16
	requestMagic = 0x50a17e57
)

func (r request) append(b []byte) []byte {
	for _, v := range []uint32{r.Number ^ requestMagic, r.Len, r.Answer, r.Delay} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func (r *request) parse(b []byte, number uint32) error {
	le := binary.LittleEndian
	*r = request{le.Uint32(b) ^ requestMagic, le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	if r.Number != number || r.Len > 1<<20 || r.Answer > 1<<20 {
		return fmt.Errorf("%w: %+v where request %d was due", errMismatch, *r, number)
	}
	return nil
}

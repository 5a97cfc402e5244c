package directsockets

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"exnet/directsockets/segment"
)

// Buffer is registered memory: what is written from it is copied once, straight into
// the reader's memory (ReadBuffer or Read), and what is read into it is put there by
// the writer.
//
// Concurrency: all methods may be called from many goroutines.
type Buffer struct{ region *segment.Region }

// NewBuffer makes a buffer of at least size bytes, 1 GiB at most. It may be used
// with many connections. Whoever is at the other end of one can read and change all
// of it from then on, at any time: use one Buffer for peers that may see each
// other's bytes.
func NewBuffer(size int) (*Buffer, error) {
	r, err := segment.NewRegion(size)
	if err != nil {
		return nil, err
	}
	return &Buffer{r}, nil
}

// Bytes lends the memory until Close.
func (b *Buffer) Bytes() []byte { return b.region.Bytes() }

// Close gives the memory back. It must not be used by a call any more.
func (b *Buffer) Close() error {
	b.region.Close()
	return nil
}

// piece is n bytes of a Buffer.
func (b *Buffer) piece(off, n int) ([]byte, error) {
	all := b.Bytes()
	if off < 0 || n < 0 || off > len(all) || n > len(all)-off {
		return nil, fmt.Errorf("%w: %d bytes at %d of a buffer of %d", ErrConfig, n, off, len(all))
	}
	return all[off : off+n : off+n], nil
}

// maxPiece is how much one message announces.
const maxPiece = 8 << 20

// WriteBuffer writes n bytes of b, from off on, and returns when the peer has them:
// then they may be changed. On a direct connection they are not copied on the way to
// the peer's buffer (zero-copy read, RMA GET); else it is Write. If it returns an
// error, the bytes must not be changed until the connection is closed.
func (c *Conn) WriteBuffer(b *Buffer, off, n int) (int, error) {
	p, err := b.piece(off, n)
	if err != nil {
		return 0, err
	}
	t := &c.tx
	if !t.take() {
		return 0, c.opError("write", net.ErrClosed)
	}
	done := 0
	for err == nil && done < n {
		if _, err = c.write(nil, 0); err != nil { // deadlines, and what others want
			break
		}
		if t.phase == txTCP && c.promote() {
			continue
		}
		if t.phase != txDirect {
			done, err = c.write(p, done)
			break
		}
		var k int
		if k, err = c.writeRegion(b, off+done, min(n-done, maxPiece)); k == 0 && err == errCopy {
			done, err = c.write(p, done)
			break
		}
		done += k
	}
	if t.free() {
		c.leaveTX()
	}
	return done, err
}

// errCopy says that zero copy cannot be done.
var errCopy = errors.New("directsockets: no zero copy")

// writeRegion sends a piece and waits until the peer has taken it.
func (c *Conn) writeRegion(b *Buffer, off, n int) (int, error) {
	t := &c.tx
	ticket, err := t.end.SendRegion(b.region, off, n)
	switch {
	case err == segment.ErrAgain:
		c.awaitTX()
		return 0, nil
	case errors.Is(err, segment.ErrNoZCopy), errors.Is(err, segment.ErrRegions):
		return 0, errCopy
	case err != nil:
		c.leaveDirectTX(err)
		return 0, nil
	}
	t.ticket, t.taking = ticket, true
	defer func() { t.taking = false }()
	for {
		ok, err := t.end.Taken(ticket)
		switch {
		case ok:
			return n, nil
		case err != nil:
			if t.phase == txDirect {
				c.leaveDirectTX(err)
			}
			for t.phase == txRolling { // it is the memory that goes to the shadow
				if err := c.roll(); err != nil && err != errKicked {
					return n, err
				}
				if err := c.stop(&t.half, "write"); err != nil {
					return n, err
				}
			}
			return n, nil
		}
		if err := c.stop(&t.half, "write"); err != nil {
			return n, err
		}
		if t.want.Load()&wantWork != 0 {
			c.workTX()
		}
		c.awaitTX()
	}
}

// ReadBuffer reads up to n bytes to b, from off on. On a direct connection the peer
// may put them there itself (zero-copy write, RMA PUT); else it is Read.
func (c *Conn) ReadBuffer(b *Buffer, off, n int) (int, error) {
	p, err := b.piece(off, n)
	if err != nil {
		return 0, err
	}
	r := &c.rx
	if !r.take() {
		return 0, c.opError("read", net.ErrClosed)
	}
	got := 0
	if r.direct && n > 0 && c.offerSink(b, off, n) {
		got = c.awaitSink()
	}
	if got == 0 {
		got, err = c.read(p)
	}
	if r.free() {
		c.leaveRX()
	}
	return got, err
}

// offerSink has the peer's next message go to b, if there is none yet.
func (c *Conn) offerSink(b *Buffer, off, n int) bool {
	t := &c.tx
	if c.rx.kicked.Load() {
		c.calm(&c.rx.half)
	}
	if c.rx.wanted() || !t.try() {
		return false
	}
	number, err := uint32(0), segment.ErrAgain
	if t.phase == txDirect {
		number, err = t.end.Share(b.region)
	}
	if t.free() {
		c.leaveTX()
	}
	return err == nil && c.rx.end.OfferSink(b.region, number, off, n) == nil
}

// awaitSink waits until the sink is filled, and says with how much. 0: it was not,
// and none stands.
func (c *Conn) awaitSink() int {
	r := &c.rx
	for !r.interrupted() {
		n, err := r.end.RecvSink()
		if err != segment.ErrAgain {
			return n // an error: Recv finds it again
		}
		c.awaitRX()
	}
	for !r.end.WithdrawSink() { // the peer is filling it
		n, err := r.end.RecvSink()
		if err != segment.ErrAgain {
			return n
		}
		runtime.Gosched()
	}
	return 0
}

package directsockets

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"exnet/directsockets/segment"
)

// Buffer is registered memory. Bytes that are written from it are copied once, straight into the
// reader's memory (ReadBuffer or Read); bytes that are read into it are put there by the writer.
//
// Concurrency: all methods may be called from many goroutines.
type Buffer struct{ region *segment.Region }

// NewBuffer makes a buffer of at least size bytes, 1 GiB at most. It may be used with many
// connections. From its first use with a connection on, that peer can read and change all of it at
// any time: share a Buffer only among peers that may see each other's bytes.
func NewBuffer(size int) (*Buffer, error) {
	r, err := segment.NewRegion(size)
	if err != nil {
		return nil, err
	}
	return &Buffer{r}, nil
}

// Bytes lends the memory until Close.
func (b *Buffer) Bytes() []byte { return b.region.Bytes() }

// Close gives the memory back. No call may use it any more.
func (b *Buffer) Close() error {
	b.region.Close()
	return nil
}

// sliceAt is n bytes of a Buffer.
func (b *Buffer) sliceAt(off, n int) ([]byte, error) {
	all := b.Bytes()
	if off < 0 || n < 0 || off > len(all) || n > len(all)-off {
		return nil, fmt.Errorf("%w: %d bytes at %d of a buffer of %d", ErrConfig, n, off, len(all))
	}
	return all[off : off+n : off+n], nil
}

// maxPiece is how much one message announces.
const maxPiece = 8 << 20

// WriteBuffer writes n bytes of b, from off on, and returns when the peer has them; then they may
// be changed. On a direct connection the peer copies them straight to its own buffer (zero-copy
// read, RMA GET); on TCP, WriteBuffer is Write. If it returns an error, the bytes must not be
// changed until the connection is closed.
func (c *Conn) WriteBuffer(b *Buffer, off, n int) (int, error) {
	posted, err := c.PostBuffer(b, off, n)
	if err == nil {
		err = c.AwaitPosted(posted)
	}
	return posted.N, err
}

// Posted is a write that PostBuffer has begun.
type Posted struct {
	N int // bytes that were posted or written

	ticket  uint64
	pending bool // the peer had not taken them
}

// PostBuffer is WriteBuffer without the wait for the peer (a work request that is
// posted to a send queue): the bytes come after those that were written before, and
// must not be changed until AwaitPosted has said that the peer has them. Many can
// be under way; it waits only while the queue is full.
func (c *Conn) PostBuffer(b *Buffer, off, n int) (posted Posted, err error) {
	p, err := b.sliceAt(off, n)
	if err != nil {
		return posted, err
	}
	t := &c.tx
	if !t.take() {
		err = c.lockError("write")
		if err == errAway {
			posted.N, err = c.writeAway(p)
		}
		return posted, err
	}
	for err == nil && posted.N < n {
		if _, err = c.writeLocked(nil, 0); err != nil { // deadlines, and what others want
			break
		}
		if t.phase <= txPaused && c.promote() {
			continue
		}
		if t.phase == txDirect && !t.demote {
			at := posted.N
			ticket, e := t.end.SendRegion(b.region, off+at, min(n-at, maxPiece))
			switch {
			case e == nil:
				posted = Posted{N: at + min(n-at, maxPiece), ticket: ticket, pending: true}
				continue
			case e == segment.ErrAgain:
				c.awaitTX(t.endFlags())
				continue
			case !errors.Is(e, segment.ErrNoZCopy) && !errors.Is(e, segment.ErrRegions):
				c.leaveDirectTX(e)
				continue
			}
		}
		posted.N, err = c.writeLocked(p, posted.N)
	}
	c.releaseTX()
	err = c.toldWrite(err)
	if err == errAway {
		var k int
		k, err = c.writeAway(p[posted.N:])
		posted.N += k
	}
	return posted, err
}

// AwaitPosted waits until the peer has taken what PostBuffer has posted, and with it everything
// that was posted before. It ends at the write deadline, and can then be called again.
func (c *Conn) AwaitPosted(p Posted) error {
	if !p.pending {
		return nil
	}
	t := &c.tx
	if !t.takeInner() {
		return c.opError("write", net.ErrClosed)
	}
	t.ticket, t.taking, t.passing = p.ticket, true, true // also if the program's calls are for a substitute
	err := c.awaitTaken()
	t.taking, t.passing = false, false
	if t.free() {
		c.leaveTX()
	}
	return c.toldWrite(err)
}

// awaitTaken waits until the peer has taken message c.tx.ticket, or the shadow has
// its bytes.
func (c *Conn) awaitTaken() error {
	t := &c.tx
	for {
		ok, err := t.end.Taken(t.ticket)
		switch {
		case ok:
			return nil
		case err != nil:
			if t.phase == txDirect {
				c.leaveDirectTX(err)
			}
			for t.phase == txReturning { // it is the memory that goes to the shadow
				if err := c.returnToTCP(); err != nil && err != errWoken {
					return err
				}
				if err := c.stopError(&t.half, "write"); err != nil {
					return err
				}
			}
			if t.phase == txOver {
				return t.err
			}
			return nil
		}
		if err := c.stopError(&t.half, "write"); err != nil {
			return err
		}
		if t.want.Load()&wantWork != 0 {
			c.workTX()
		}
		c.awaitTX(flagsStop)
	}
}

// ReadBuffer reads up to n bytes to b, from off on. On a direct connection the peer may put them
// there itself (zero-copy write, RMA PUT); on TCP, ReadBuffer is Read.
func (c *Conn) ReadBuffer(b *Buffer, off, n int) (int, error) {
	p, err := b.sliceAt(off, n)
	if err != nil {
		return 0, err
	}
	r := &c.rx
	if !r.take() {
		return c.readAway(p)
	}
	got := 0
	if r.direct && n > 0 && c.offerSink(b, off, n) {
		got = c.awaitSink()
	}
	if got == 0 {
		got, err = c.readLocked(p)
	}
	c.releaseRX()
	if err == errAway {
		return c.readAway(p)
	}
	return got, c.toldRead(err)
}

// offerSink has the peer's next message go to b, if there is none yet.
func (c *Conn) offerSink(b *Buffer, off, n int) bool {
	t := &c.tx
	if c.rx.woken.Load() {
		c.clearWake(&c.rx.half)
	}
	if c.rx.loadSignals().wanted(flagsCall) || !t.try() {
		return false
	}
	number, err := uint32(0), segment.ErrAgain
	if t.phase == txDirect && !t.demote {
		number, err = t.end.Share(b.region)
	}
	if t.free() {
		c.leaveTX()
	}
	return err == nil && c.rx.end.OfferSink(b.region, number, off, n) == nil
}

// awaitSink waits until the sink is filled, and says with how much. 0: it was not,
// and there is none.
func (c *Conn) awaitSink() int {
	r := &c.rx
	for !r.loadSignals().interrupted(flagsCall) {
		n, err := r.end.RecvSink()
		if err != segment.ErrAgain {
			return n // an error: Recv finds it again
		}
		if c.awaitRX() != nil {
			break
		}
	}
	for tries := 0; !r.end.WithdrawSink(); tries++ { // the peer is filling it
		n, err := r.end.RecvSink()
		if err != segment.ErrAgain {
			return n
		}
		if tries < sinkTries {
			runtime.Gosched()
		} else {
			sinkPause()
		}
	}
	return 0
}

// sinkTries is how often awaitSink looks at a sink that the peer is filling before it sleeps
// between the looks: a peer that never ends it would have a processor for 10 s.
const sinkTries = 1000

// sinkPause is that sleep, which tests count.
var sinkPause = func() { time.Sleep(time.Millisecond) }

package directsockets

import (
	"net"

	"exnet/directsockets/segment"
)

// gatherMax is the piece of a net.Buffers that is gathered with others to be one write:
// a copy that costs less than a message of its own. A larger one is written as it is.
const gatherMax = 16 << 10

// piecesMax is how many pieces are one write, as of the kernel's writev.
const piecesMax = 1024

// WriteBuffers writes bufs in order and removes what was written from it, as net.Buffers.WriteTo
// does for a net.TCPConn. Adjacent small pieces become one write.
func (c *Conn) WriteBuffers(bufs *net.Buffers) (sum int64, err error) {
	room := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(room)
	for err == nil {
		if consumeFirst(bufs, 0); len(*bufs) == 0 {
			break
		}
		v, ok := c.shadow.(buffersWriter)
		if ok {
			var n int64
			var handled bool
			if n, handled, err = c.writevShadow(v, bufs); handled {
				sum += n
				continue
			}
		}
		k := 0
		k, err = c.Write(gatherFirst(room[:], *bufs))
		sum += int64(k)
		consumeFirst(bufs, k)
		if ok {
			v.WroteBuffers(k)
		}
	}
	return sum, err
}

// buffersWriter is a shadow that writes a list at once (writev), and takes from it what
// was written.
type buffersWriter interface {
	WriteBuffers(*net.Buffers) (int64, error)
	// WroteBuffers is told about a write of a list's bytes that went another way.
	WroteBuffers(n int)
}

// writevShadow writes the list, or a part of it, to the shadow. It is not handled when the
// next bytes do not belong there, or not for certain.
func (c *Conn) writevShadow(v buffersWriter, bufs *net.Buffers) (n int64, handled bool, err error) {
	t := &c.tx
	if !t.try() {
		return 0, false, nil
	}
	defer func() {
		if t.free() {
			c.leaveTX()
		}
	}()
	if t.phase > txPaused && t.phase != txBack {
		return 0, false, nil
	}
	c.startSetup(1)
	if t.flags.Load() != 0 || t.want.Load()&wantWork != 0 || t.woken.Load() || c.promote() {
		return 0, false, nil
	}
	first, rest := *bufs, net.Buffers(nil)
	if size := firstPieces(first, shadowChunk); size < len(first) {
		first, rest = first[:size:size], first[size:]
	}
	n, err = v.WriteBuffers(&first)
	if len(first) > 0 {
		*bufs = append(first, rest...)
	} else {
		*bufs = rest
	}
	c.count.Add(segment.SentShadow, uint64(n))
	t.shadow += uint64(n)
	c.sends.Add(1)
	if err = c.shadowError(&t.half, "write", err); err == errWoken {
		err = nil
	}
	return n, true, c.toldWrite(err)
}

// firstPieces is how many pieces of bufs, one at least, have no more than limit bytes.
func firstPieces(bufs net.Buffers, limit int) int {
	sum := 0
	for i, b := range bufs {
		if sum += len(b); sum > limit && i > 0 {
			return i
		}
	}
	return len(bufs)
}

// gatherFirst returns the first bytes of bufs, which is not empty: those of one piece, or
// copies in room of as many as fit.
func gatherFirst(room []byte, bufs net.Buffers) []byte {
	n := 0
	for i, b := range bufs {
		if len(b) > gatherMax || n+len(b) > len(room) || i == piecesMax {
			if n == 0 {
				return bufs[i]
			}
			break
		}
		n += copy(room[n:], b)
	}
	return room[:n]
}

// consumeFirst takes the first n bytes from bufs, and empty pieces that come next.
func consumeFirst(bufs *net.Buffers, n int) {
	for len(*bufs) > 0 {
		if k := len((*bufs)[0]); k > n {
			(*bufs)[0] = (*bufs)[0][n:]
			return
		} else {
			n -= k
		}
		(*bufs)[0] = nil
		*bufs = (*bufs)[1:]
	}
}

package directsockets

import "net"

// gatherMax is the piece of a net.Buffers that is gathered with others to be one write:
// a copy that costs less than a message of its own. A larger one is written as it is.
const gatherMax = 16 << 10

// WriteBuffers writes what bufs has, in order, and takes from it what was written, as
// net.Buffers.WriteTo does for a net.TCPConn. Small pieces that follow each other are
// one write.
func (c *Conn) WriteBuffers(bufs *net.Buffers) (sum int64, err error) {
	room := copyBuffers.Get().(*[copyChunk]byte)
	defer copyBuffers.Put(room)
	for len(*bufs) > 0 {
		n, err := c.Write(gather(room[:], *bufs))
		sum += int64(n)
		consume(bufs, n)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// gather returns the first bytes of bufs, which is not empty: those of one piece, or
// copies in room of as many as fit.
func gather(room []byte, bufs net.Buffers) []byte {
	n := 0
	for i, b := range bufs {
		if len(b) > gatherMax || n+len(b) > len(room) {
			if n == 0 {
				return bufs[i]
			}
			break
		}
		n += copy(room[n:], b)
	}
	return room[:n]
}

// consume takes the first n bytes from bufs, and empty pieces that come next.
func consume(bufs *net.Buffers, n int) {
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

package tcpbench

import (
	"net/netip"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// ZeroCopy is direct sockets whose messages lie in registered buffers at both ends.
const ZeroCopy Transport = "ds-zcopy"

func init() {
	transports[ZeroCopy] = transport{
		listen: func(j job) (listener, netip.AddrPort, error) {
			l, addr, err := listenDirect(j)
			return zcopyListener{l}, addr, err
		},
		dial: func(j job) (conn, error) {
			c, err := dialDirect(j)
			if err != nil {
				return nil, err
			}
			return &zcopyConn{directConn: c.(*directConn)}, nil
		},
	}
}

type zcopyListener struct{ listener }

func (l zcopyListener) accept() (conn, error) {
	c, err := l.listener.accept()
	if err != nil {
		return nil, err
	}
	return &zcopyConn{directConn: c.(*directConn)}, nil
}

// ahead is how many bytes are posted before their sender waits, but 2 to maxPosted
// messages.
const (
	ahead     = 1 << 20
	maxPosted = 64
)

// zcopyConn is a connection whose messages lie in a registered buffer.
type zcopyConn struct {
	*directConn
	b      *directsockets.Buffer // nil until there is a message
	n      int                   // bytes of it that are used
	posted []directsockets.Posted
	next   int // place of the next one in posted
}

// buffer implements bufferer.
func (c *zcopyConn) buffer(n int) (_ []byte, err error) {
	c.n = n
	if c.b, err = directsockets.NewBuffer(n); err != nil {
		return nil, err
	}
	c.posted = make([]directsockets.Posted, min(max(2, ahead/n), maxPosted))
	return c.b.Bytes()[:n:n], nil
}

// offsetOf returns where p, the rest of the buffer, begins.
func (c *zcopyConn) offsetOf(p []byte) int { return c.n - len(p) }

// Write implements conn; p is the buffer or its rest.
func (c *zcopyConn) Write(p []byte) (int, error) {
	if c.b == nil { // a CRR's
		return c.directConn.Write(p)
	}
	posted, err := c.PostBuffer(c.b, c.offsetOf(p), len(p))
	if err != nil {
		return posted.N, err
	}
	c.posted[c.next] = posted
	c.next = (c.next + 1) % len(c.posted)
	return posted.N, c.AwaitPosted(c.posted[c.next])
}

// Read implements conn; p is the buffer or its rest.
func (c *zcopyConn) Read(p []byte) (int, error) {
	if c.b == nil {
		return c.directConn.Read(p)
	}
	return c.ReadBuffer(c.b, c.offsetOf(p), len(p))
}

// Close implements conn.
func (c *zcopyConn) Close() error {
	err := c.directConn.Close()
	if c.b != nil {
		_ = c.b.Close() // fails never
	}
	return err
}

// shadow returns how many bytes did not go the direct way without a copy.
func (c *zcopyConn) shadow() (uint64, string) {
	s := c.Stats()
	n := s.Counters
	copied := int64(n[segment.SentDirect]+n[segment.ReceivedDirect]) - int64(n[segment.ZCopySent]+n[segment.ZCopyReceived])
	return n[segment.SentShadow] + n[segment.ReceivedShadow] + uint64(max(copied, 0)), s.String()
}

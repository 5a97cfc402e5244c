package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"exnet/fabric"
)

// hello is the first message of each side on each connection. On the first connection
// the mailboxes that are open follow.
type hello struct {
	version    uint32
	node, peer fabric.NodeID // who sends it, and to whom
	index      uint8         // of the connection
	conns      uint8
	boxes      uint16 // mailboxes that follow
	session    uint64 // the same on all connections of a link
}

// Offsets of the fields of a hello (little endian).
const (
	helloVersionOff = 8
	helloNodeOff    = 12
	helloPeerOff    = 14
	helloIndexOff   = 16
	helloConnsOff   = 17
	helloBoxesOff   = 18
	helloSessionOff = 24 // 4 bytes before are zero
	helloLen        = 32
	helloBoxLen     = 6 // VPID 2, credits 4

	helloMagic = "exnetstr"
	// engineMagic is what link/ofi says first.
	engineMagic = "exnetofi"
	// Version is the version of the link. Sides of different versions do not talk.
	Version = 1
)

// append appends the encoding of h to b.
func (h *hello) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(append(b, helloMagic...), h.version)
	b = le.AppendUint16(le.AppendUint16(b, uint16(h.node)), uint16(h.peer))
	b = le.AppendUint16(append(b, h.index, h.conns), h.boxes)
	return le.AppendUint64(append(b, 0, 0, 0, 0), h.session)
}

// decode decodes a hello; what is reserved is ignored.
func (h *hello) decode(b *[helloLen]byte) error {
	if string(b[:helloVersionOff]) == engineMagic {
		return fmt.Errorf("%w: the peer uses --link ofi, this node --link stream", ErrHello)
	}
	if string(b[:helloVersionOff]) != helloMagic {
		return fmt.Errorf("%w: the other end is not an exnet node", ErrHello)
	}
	le := binary.LittleEndian
	*h = hello{
		version: le.Uint32(b[helloVersionOff:]),
		node:    fabric.NodeID(le.Uint16(b[helloNodeOff:])), peer: fabric.NodeID(le.Uint16(b[helloPeerOff:])),
		index: b[helloIndexOff], conns: b[helloConnsOff],
		boxes: le.Uint16(b[helloBoxesOff:]), session: le.Uint64(b[helloSessionOff:]),
	}
	if h.version != Version {
		return fmt.Errorf("%w (%d, here %d)", ErrVersion, h.version, Version)
	}
	return nil
}

// exchangeHellos exchanges hellos on all connections, and returns them in the order of their
// index. The lower node gives the indices and the session, the higher one takes them.
func (l *Link) exchangeHellos(conns []net.Conn) ([]net.Conn, error) {
	deadline := time.Now().Add(l.cfg.HelloTimeout)
	for _, c := range conns {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, fmt.Errorf("stream: connect: %w", err)
		}
	}
	me := l.nic.ID()
	if me == l.cfg.Peer {
		return nil, fmt.Errorf("%w: node %d with itself: %w", ErrHello, me, fabric.ErrInUse)
	}
	ordered := make([]net.Conn, len(conns))
	mine := hello{version: Version, node: me, peer: l.cfg.Peer, conns: uint8(len(conns)), session: rand.Uint64()}
	if me < l.cfg.Peer {
		for i, c := range conns {
			mine.index, ordered[i] = uint8(i), c
			if err := l.sayHello(c, mine); err != nil {
				return nil, err
			}
		}
	}
	for i, c := range conns {
		theirs, err := l.hearHello(c)
		if err != nil {
			return nil, err
		}
		if i == 0 && me > l.cfg.Peer {
			mine.session = theirs.session
		}
		known := int(theirs.index) < len(ordered)
		switch {
		case theirs.session != mine.session || int(theirs.conns) != len(conns) || !known,
			me < l.cfg.Peer && ordered[theirs.index] != c, me > l.cfg.Peer && ordered[theirs.index] != nil:
			return nil, fmt.Errorf("%w: connection %d of %d does not belong to the others", ErrHello, theirs.index, theirs.conns)
		}
		ordered[theirs.index] = c
	}
	if me > l.cfg.Peer {
		for i, c := range ordered {
			mine.index = uint8(i)
			if err := l.sayHello(c, mine); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range conns {
		if err := c.SetDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("stream: connect: %w", err)
		}
	}
	return ordered, nil
}

// sayHello sends h, and on the first connection which mailboxes are open.
func (l *Link) sayHello(c net.Conn, h hello) error {
	var boxes []byte
	if h.index == 0 {
		boxes = l.out.openMailboxes()
		h.boxes = uint16(len(boxes) / helloBoxLen)
	}
	if _, err := c.Write(append(h.append(nil), boxes...)); err != nil {
		return fmt.Errorf("%w: send: %w", ErrHello, err)
	}
	return nil
}

// hearHello reads the peer's hello, and its mailboxes.
func (l *Link) hearHello(c net.Conn) (h hello, err error) {
	var b [helloLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer within %v: %w", l.cfg.HelloTimeout, err)
		}
		return h, fmt.Errorf("%w: %w", ErrHello, err)
	}
	if err := h.decode(&b); err != nil {
		return h, err
	}
	switch {
	case h.node != l.cfg.Peer:
		return h, fmt.Errorf("%w: the peer is node %d, not %d", ErrHello, h.node, l.cfg.Peer)
	case h.peer != l.nic.ID():
		return h, fmt.Errorf("%w: it takes this node for %d", ErrHello, h.peer)
	case h.boxes > fabric.VPIDs || h.boxes > 0 && h.index != 0:
		return h, fmt.Errorf("%w: %d mailboxes", ErrHello, h.boxes)
	}
	list := make([]byte, int(h.boxes)*helloBoxLen)
	if _, err := io.ReadFull(c, list); err != nil {
		return h, fmt.Errorf("%w: mailboxes: %w", ErrHello, err)
	}
	for ; len(list) > 0; list = list[helloBoxLen:] {
		v, limit := binary.LittleEndian.Uint16(list), binary.LittleEndian.Uint32(list[2:])
		if !fabric.VPID(v).Valid() || limit > maxCredits {
			return h, fmt.Errorf("%w: mailbox %d of %d credits", ErrHello, v, limit)
		}
		l.boxes[v].Store(limit)
	}
	return h, nil
}

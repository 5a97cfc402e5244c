package ofi

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"exnet/fabric"
)

// offer is the first message of each side over the authenticated connection.
type offer struct {
	node, peer fabric.NodeID
	provider   string // "": what the listener has
}

// place is what the listener says when it listens, or why it does not; the other side
// answers with one when it is connected, or why it is not.
type place struct {
	port     uint16
	provider string
	tokens   [2][tokenLen]byte // that the connecting side shows, and that which it is shown
	failure  string
}

// Both have messageLen bytes; numbers are little endian, text ends with a zero.
const (
	messageLen = 256
	magic      = "exnetofi"
	streams    = "exnetstr" // of a peer without an engine
	// protocol is the version of the messages and of how the link uses libfabric.
	protocol = 1

	versionOff  = 8  // 4 bytes
	nodeOff     = 12 // 2
	peerOff     = 14 // 2
	portOff     = 16 // 2; 6 bytes are reserved
	tokensOff   = 24 // 2 x 16
	providerOff = 56 // 40
	failureOff  = 96 // the rest
	tokenLen    = 16
)

func header() []byte {
	b := make([]byte, messageLen)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[versionOff:], protocol)
	return b
}

// printable is that of a field, fit to be shown.
func printable(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return plain(s)
}

func (o *offer) marshal() []byte {
	b := header()
	binary.LittleEndian.PutUint16(b[nodeOff:], uint16(o.node))
	binary.LittleEndian.PutUint16(b[peerOff:], uint16(o.peer))
	copy(b[providerOff:failureOff-1], o.provider)
	return b
}

func (o *offer) unmarshal(b *[messageLen]byte) {
	le := binary.LittleEndian
	o.node, o.peer = fabric.NodeID(le.Uint16(b[nodeOff:])), fabric.NodeID(le.Uint16(b[peerOff:]))
	o.provider = printable(b[providerOff:failureOff])
}

func (p *place) marshal() []byte {
	b := header()
	binary.LittleEndian.PutUint16(b[portOff:], p.port)
	copy(b[tokensOff:], p.tokens[0][:])
	copy(b[tokensOff+tokenLen:], p.tokens[1][:])
	copy(b[providerOff:failureOff-1], p.provider)
	copy(b[failureOff:messageLen-1], p.failure)
	return b
}

func (p *place) unmarshal(b *[messageLen]byte) {
	p.port = binary.LittleEndian.Uint16(b[portOff:])
	copy(p.tokens[0][:], b[tokensOff:])
	copy(p.tokens[1][:], b[tokensOff+tokenLen:])
	p.provider, p.failure = printable(b[providerOff:failureOff]), printable(b[failureOff:])
}

// hearMessage reads a message, of which it checks what both kinds have.
func hearMessage(r io.Reader) (b [messageLen]byte, err error) {
	if _, err := io.ReadFull(r, b[:len(magic)]); err != nil {
		return b, fmt.Errorf("%w: the peer has hung up: does it use --link ofi, too?", ErrMismatch)
	}
	switch string(b[:len(magic)]) {
	case magic:
	case streams:
		return b, fmt.Errorf("%w: the peer uses --link stream, this node --link ofi", ErrMismatch)
	default:
		return b, fmt.Errorf("%w: the other end is not an exnet node", ErrMismatch)
	}
	if _, err := io.ReadFull(r, b[len(magic):]); err != nil {
		return b, fmt.Errorf("%w: half a message: %w", ErrMismatch, err)
	}
	if v := binary.LittleEndian.Uint32(b[versionOff:]); v != protocol {
		return b, fmt.Errorf("%w: the peer's version is %d, this one's %d: update one of them", ErrMismatch, v, protocol)
	}
	return b, nil
}

package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
)

// peerType is the type of a message between brokers (SPEC.md, 6.1).
type peerType uint8

// The messages between brokers. The zero peerType is invalid.
const (
	peerNode    peerType = iota + 17 // who this is; the first message
	peerPort                         // listeners at an address
	peerHand                         // an offer; segment, side 1's doorbell
	peerResult                       // what became of it
	peerRetract                      // it is not made any more
)

// maxAddrs is how many addresses a node may have.
const maxAddrs = 64

const (
	peerNodeOff   = HeaderLen     // NODE: uint16
	peerNAddrsOff = HeaderLen + 2 // uint16
	peerAddrsOff  = HeaderLen + 4 // 16 bytes each

	peerBoundOff = HeaderLen      // PORT: address; unspecified: all of its family
	peerPortOff  = HeaderLen + 16 // uint16
	peerFlagsOff = HeaderLen + 18 // uint8; 1: :: is for IPv6 only; 2: all addresses of IPv4; then a byte zero
	peerCountOff = HeaderLen + 20 // uint32
	peerPortLen  = HeaderLen + 24

	peerHandLen   = HeaderLen + 16 + endsLen // HAND: as GRANT
	peerResultLen = HeaderLen + 1            // RESULT: uint8, 0: claimed, else a Reason

	maxPeerLen = peerAddrsOff + 16*maxAddrs
)

const (
	flagV6Only = 1
	flagIPv4   = 2
)

func (t peerType) valid() bool { return t >= peerNode && t <= peerRetract }

// descriptors is how many come with a message of this type.
func (t peerType) descriptors() int {
	if t == peerHand {
		return 2
	}
	return 0
}

func (t peerType) String() string {
	if !t.valid() {
		return fmt.Sprintf("peerType(%d)", uint8(t))
	}
	return [...]string{"NODE", "PORT", "HAND", "RESULT", "RETRACT"}[t-peerNode]
}

// peerMessage is a message between brokers, without its descriptors. The fields that
// its type does not have are zero.
type peerMessage struct {
	Type           peerType
	ID             uint32         // peerHand, peerResult, peerRetract: of the offer
	Node           uint16         // peerNode
	Addrs          []netip.Addr   // peerNode; nobody writes to it
	Bound          bound          // peerPort
	Count          uint32         // peerPort: how many listeners there are now
	Nonce          Nonce          // peerHand
	Client, Server netip.AddrPort // peerHand
	Reason         Reason         // peerResult; 0: claimed
}

// AppendBinary implements encoding.BinaryAppender.
func (m peerMessage) AppendBinary(b []byte) ([]byte, error) {
	if !m.Type.valid() || len(m.Addrs) > maxAddrs {
		return b, fmt.Errorf("%w: %v, %d addresses", ErrMessage, m.Type, len(m.Addrs))
	}
	begin := len(b)
	b = append(b, uint8(m.Type), Version, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, m.ID)
	switch m.Type {
	case peerNode:
		b = binary.LittleEndian.AppendUint16(b, m.Node)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Addrs)))
		for _, a := range m.Addrs {
			raw := addr16(a)
			b = append(b, raw[:]...)
		}
	case peerPort:
		raw, flags := addr16(m.Bound.addr), uint8(0)
		if m.Bound.addr.IsUnspecified() {
			raw = [16]byte{}
			if m.Bound.addr.Is4() {
				flags = flagIPv4
			}
		}
		if m.Bound.v6only {
			flags |= flagV6Only
		}
		b = append(b, raw[:]...)
		b = binary.LittleEndian.AppendUint16(b, m.Bound.port)
		b = append(b, flags, 0)
		b = binary.LittleEndian.AppendUint32(b, m.Count)
	case peerHand:
		b = append(b, m.Nonce[:]...)
		b = appendEnds(b, m.Client, m.Server)
	case peerResult:
		b = append(b, uint8(m.Reason))
	}
	binary.LittleEndian.PutUint16(b[begin+lengthOff:], uint16(len(b)-begin))
	return b, nil
}

// UnmarshalBinary decodes b, which is one whole message. It keeps no reference to b
// and leaves m unchanged on error.
func (m *peerMessage) UnmarshalBinary(b []byte) error {
	if len(b) < HeaderLen {
		return fmt.Errorf("%w: %d bytes: %w", ErrMessage, len(b), io.ErrUnexpectedEOF)
	}
	n := peerMessage{Type: peerType(b[typeOff]), ID: binary.LittleEndian.Uint32(b[idOff:])}
	if v := b[versionOff]; v != Version {
		return fmt.Errorf("%w: version %d, this is %d: update one of them", ErrMessage, v, Version)
	}
	want := HeaderLen
	switch n.Type {
	case peerNode:
		want = peerAddrsOff
		if len(b) >= want {
			want += 16 * int(binary.LittleEndian.Uint16(b[peerNAddrsOff:]))
		}
	case peerPort:
		want = peerPortLen
	case peerHand:
		want = peerHandLen
	case peerResult:
		want = peerResultLen
	case peerRetract:
	default:
		return fmt.Errorf("%w: %v", ErrMessage, n.Type)
	}
	if len(b) < want {
		return fmt.Errorf("%w: %v of %d bytes: %w", ErrMessage, n.Type, len(b), io.ErrUnexpectedEOF)
	}
	if got := int(binary.LittleEndian.Uint16(b[lengthOff:])); got != want || len(b) != want || want > maxPeerLen {
		return fmt.Errorf("%w: %v of %d bytes says %d, has %d", ErrMessage, n.Type, len(b), got, want)
	}
	switch n.Type {
	case peerNode:
		n.Node = binary.LittleEndian.Uint16(b[peerNodeOff:])
		for at := peerAddrsOff; at < len(b); at += 16 {
			n.Addrs = append(n.Addrs, netip.AddrFrom16([16]byte(b[at:])).Unmap())
		}
	case peerPort:
		flags := b[peerFlagsOff]
		n.Bound = bound{addr: netip.AddrFrom16([16]byte(b[peerBoundOff:])).Unmap(), v6only: flags&flagV6Only != 0}
		if n.Bound.addr.IsUnspecified() && flags&flagIPv4 != 0 {
			n.Bound.addr = netip.IPv4Unspecified()
		}
		n.Bound.port = binary.LittleEndian.Uint16(b[peerPortOff:])
		n.Count = binary.LittleEndian.Uint32(b[peerCountOff:])
	case peerHand:
		n.Nonce = Nonce(b[nonceOff:])
		n.Client, n.Server = parseEnds(b[endsOff:])
	case peerResult:
		n.Reason = Reason(b[reasonOff])
	}
	*m = n
	return nil
}

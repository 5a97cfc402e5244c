package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"

	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"
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
	peerFound                        // the server's socket for it is there
	peerStands                       // and so is the client's, still
)

// peerVersions are those of what brokers tell each other. In version 1 an offer could be claimed as
// soon as it was handed over. In version 2 NODE named one version only. Before version 4 the
// Carriers of nodes on one host spoke their oldest version with each other.
var peerVersions = rpc.Versions{Oldest: 2, Newest: 4}

// carriedVersion is the version that the Carriers of two nodes on one host speak whose brokers
// speak version 4. Those of two hosts say theirs (carrierShift).
const carriedVersion = 6

// maxAddrs is how many addresses a node may have.
const maxAddrs = 64

// Offsets: a message begins as one of a client's does (package wire).
const (
	peerTypeOff    = 0 // uint8
	peerVersionOff = 1 // uint8: of the session; NODE: the oldest that its sender speaks
	peerLengthOff  = 2 // uint16, of the whole message
	peerIDOff      = 4 // uint32, of the offer; NODE: the newest version that its sender speaks

	peerNonceOff  = wire.HeaderLen      // HAND: 16 bytes
	peerEndsOff   = wire.HeaderLen + 16 // HAND: the ends of the connection
	peerReasonOff = wire.HeaderLen      // RESULT: uint8

	peerNodeOff   = wire.HeaderLen     // NODE: uint16
	peerNAddrsOff = wire.HeaderLen + 2 // uint16
	peerAddrsOff  = wire.HeaderLen + 4 // 16 bytes each

	peerBoundOff = wire.HeaderLen      // PORT: address; unspecified: all of its family
	peerPortOff  = wire.HeaderLen + 16 // uint16
	peerFlagsOff = wire.HeaderLen + 18 // uint8; 1: :: is for IPv6 only; 2: all addresses of IPv4; then a byte zero
	peerCountOff = wire.HeaderLen + 20 // uint32
	peerPortLen  = wire.HeaderLen + 24

	peerHandLen   = wire.HeaderLen + 16 + wire.EndsLen // HAND: as GRANT
	peerResultLen = wire.HeaderLen + 1                 // RESULT: uint8, 0: claimed, else a Reason

	maxPeerLen = peerAddrsOff + 16*maxAddrs
)

const (
	flagV6Only = 1
	flagIPv4   = 2
)

func (t peerType) isValid() bool { return t >= peerNode && t <= peerStands }

// countDescriptors is how many come with a message of this type.
func (t peerType) countDescriptors() int {
	if t == peerHand {
		return 2
	}
	return 0
}

func (t peerType) String() string {
	if !t.isValid() {
		return fmt.Sprintf("peerType(%d)", uint8(t))
	}
	return [...]string{"NODE", "PORT", "HAND", "RESULT", "RETRACT", "FOUND", "STANDS"}[t-peerNode]
}

// peerMessage is a message between brokers, without its descriptors. The fields that
// its type does not have are zero.
type peerMessage struct {
	Type           peerType
	Version        uint8          // as peerVersionOff says; 0: the oldest of peerVersions
	ID             uint32         // as peerIDOff says
	Node           uint16         // peerNode
	Addrs          []netip.Addr   // peerNode; nobody writes to it
	Bound          bound          // peerPort
	Count          uint32         // peerPort: how many listeners there are now
	Nonce          wire.Nonce     // peerHand
	Client, Server netip.AddrPort // peerHand
	Reason         wire.Reason    // peerResult; 0: claimed
	// pair: peerHand, within a Group only; it is in no message between processes.
	pair *pair
	// payer: peerHand, within this process only: who pays for its descriptors.
	payer levels
}

// agreedVersion is the version of a session with a broker that has said this NODE. ok: there is
// one.
func (m peerMessage) agreedVersion() (version uint8, ok bool) {
	return peerVersions.Common(rpc.Said(m.Version, uint64(m.ID)))
}

// forVersion returns m as a message of a session of that version. NODE says which versions its
// sender speaks, in every session.
func (m peerMessage) forVersion(version uint8) peerMessage {
	if m.Type != peerNode {
		m.Version = version
	}
	return m
}

// AppendBinary implements encoding.BinaryAppender.
func (m peerMessage) AppendBinary(b []byte) ([]byte, error) {
	if !m.Type.isValid() || len(m.Addrs) > maxAddrs {
		return b, fmt.Errorf("%w: %v, %d addresses", wire.ErrMessage, m.Type, len(m.Addrs))
	}
	begin := len(b)
	if m.Version == 0 {
		m.Version = peerVersions.Oldest
	}
	b = append(b, uint8(m.Type), m.Version, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, m.ID)
	switch m.Type {
	case peerNode:
		b = binary.LittleEndian.AppendUint16(b, m.Node)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Addrs)))
		for _, a := range m.Addrs {
			b = wire.AppendAddr(b, a)
		}
	case peerPort:
		at, flags := m.Bound.addr, uint8(0)
		if at.IsUnspecified() {
			if at.Is4() {
				flags = flagIPv4
			}
			at = netip.Addr{}
		}
		if m.Bound.v6only {
			flags |= flagV6Only
		}
		b = wire.AppendAddr(b, at)
		b = binary.LittleEndian.AppendUint16(b, m.Bound.port)
		b = append(b, flags, 0)
		b = binary.LittleEndian.AppendUint32(b, m.Count)
	case peerHand:
		b = append(b, m.Nonce[:]...)
		b = wire.AppendEnds(b, m.Client, m.Server)
	case peerResult:
		b = append(b, uint8(m.Reason))
	}
	binary.LittleEndian.PutUint16(b[begin+peerLengthOff:], uint16(len(b)-begin))
	return b, nil
}

// UnmarshalBinary decodes b, which is one whole message. It keeps no reference to b
// and leaves m unchanged on error.
func (m *peerMessage) UnmarshalBinary(b []byte) error {
	if len(b) < wire.HeaderLen {
		return fmt.Errorf("%w: %d bytes: %w", wire.ErrMessage, len(b), io.ErrUnexpectedEOF)
	}
	n := peerMessage{Type: peerType(b[peerTypeOff]), Version: b[peerVersionOff], ID: binary.LittleEndian.Uint32(b[peerIDOff:])}
	known := peerVersions.Has(n.Version)
	if n.Type == peerNode && n.Version > 0 {
		_, known = n.agreedVersion()
	}
	if !known {
		return fmt.Errorf("%w: version %d, this speaks %v: update one of them", wire.ErrMessage, n.Version, peerVersions)
	}
	want := wire.HeaderLen
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
	case peerRetract, peerFound, peerStands:
	default:
		return fmt.Errorf("%w: %v", wire.ErrMessage, n.Type)
	}
	if len(b) < want {
		return fmt.Errorf("%w: %v of %d bytes: %w", wire.ErrMessage, n.Type, len(b), io.ErrUnexpectedEOF)
	}
	if got := int(binary.LittleEndian.Uint16(b[peerLengthOff:])); got != want || len(b) != want || want > maxPeerLen {
		return fmt.Errorf("%w: %v of %d bytes says %d, has %d", wire.ErrMessage, n.Type, len(b), got, want)
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
		n.Nonce = wire.Nonce(b[peerNonceOff:])
		n.Client, n.Server = wire.ParseEnds(b[peerEndsOff:])
	case peerResult:
		n.Reason = wire.Reason(b[peerReasonOff])
	}
	*m = n
	return nil
}

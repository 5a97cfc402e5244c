package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"exnet/node/rpc"
)

// Version is that of the page and of the statistics.
const Version = 1

// Versions are those of the messages between a client and its broker. In version 1 LISTEN, OFFER
// and CLAIM carried the socket itself, which kept it open. In version 2 HELLO named one version
// only.
var Versions = rpc.Versions{Oldest: 2, Newest: 3}

// Offsets of a message's header (little endian, as everything):
//
//	 0        1         2              4                              8
//	┌────────┬─────────┬──────────────┬──────────────────────────────┬──────
//	│ type   │ version │ length       │ id                           │ body
//	└────────┴─────────┴──────────────┴──────────────────────────────┴──────
const (
	typeOff    = 0 // uint8
	versionOff = 1 // uint8: of the session, see Message.Version
	lengthOff  = 2 // uint16, of the whole message
	idOff      = 4 // uint32, chosen by who asks
	HeaderLen  = 8
)

// Offsets in the bodies, from the beginning of the message.
const (
	programOff = HeaderLen // HELLO: 16 bytes, zero padded

	nodeOff     = HeaderLen     // WELCOME: uint16, then 2 bytes zero
	featuresOff = HeaderLen + 4 // uint32

	nonceOff = HeaderLen      // OFFER, WITHDRAW, GRANT, FLOW: 16 bytes
	endsOff  = HeaderLen + 16 // OFFER, GRANT, FLOW: the ends of the connection
	shownOff = HeaderLen      // LISTEN, CLAIM: the ends
	ifLen    = 4              // LISTEN, CLAIM, OFFER: after the ends, uint32, the interface; udpBit
	udpBit   = 1 << 31        // the socket is of UDP
	flowBit  = 1 << 30        // with udpBit, in CLAIM: FLOW may answer it

	cookieOff = endsOff + EndsLen // FLOW: uint64

	reasonOff = HeaderLen // REFUSED: uint8
)

// MaxLen is the length of the longest message, FLOW.
const MaxLen = cookieOff + 8

// MaxDescriptors is the most descriptors that a message has.
const MaxDescriptors = 3

// Bits of WELCOME's features.
const (
	FeatureUDP  = 1 << iota // the broker knows UDP
	FeatureFlow             // and FLOW
)

// Limits of a client, and times (SPEC.md, 6).
const (
	// MaxListeners is how many listeners a client may announce.
	MaxListeners = 4096
	// OfferTime is how long an offer waits to be claimed.
	OfferTime = 10 * time.Second
	// HandTime is how long the outcome of an offer that was handed to another broker
	// may take: it expires there.
	HandTime = OfferTime + 5*time.Second
)

// Type is the type of a message.
type Type uint8

// The messages. The zero Type is invalid.
const (
	Hello    Type = iota + 1 // client → broker; its statistics
	Welcome                  // broker → client; the page
	Listen                   // client → broker; proof of a listening socket, or of one that it accepted
	Unlisten                 // client → broker; id is that of the Listen
	Offer                    // client → broker; proof of the shadow, segment, side 1's doorbell
	Withdraw                 // client → broker
	Claim                    // client → broker; proof of the shadow
	Grant                    // broker → client; segment, side 1's doorbell
	None                     // broker → client; there is no offer for that Claim
	Refused                  // broker → client; reason of that Offer or Listen
	Flow                     // broker → client; as Grant, of UDP, with the sender's cookie
)

// shapes has the length and the number of descriptors of each type.
var shapes = [...]struct {
	name     string
	len, fds int
}{
	Hello:    {"HELLO", HeaderLen + 16, 1},
	Welcome:  {"WELCOME", HeaderLen + 8, 1},
	Listen:   {"LISTEN", HeaderLen + EndsLen + ifLen, 1},
	Unlisten: {"UNLISTEN", HeaderLen, 0},
	Offer:    {"OFFER", HeaderLen + 16 + EndsLen + ifLen, 3},
	Withdraw: {"WITHDRAW", HeaderLen + 16, 0},
	Claim:    {"CLAIM", HeaderLen + EndsLen + ifLen, 1},
	Grant:    {"GRANT", HeaderLen + 52, 2},
	None:     {"NONE", HeaderLen, 0},
	Refused:  {"REFUSED", HeaderLen + 1, 0},
	Flow:     {"FLOW", MaxLen, 2},
}

func (t Type) valid() bool { return t >= Hello && t <= Flow }

// Len is the length of a message of this type, in bytes; 0: there is none.
func (t Type) Len() int {
	if !t.valid() {
		return 0
	}
	return shapes[t].len
}

// Descriptors is how many come with a message of this type.
func (t Type) Descriptors() int {
	if !t.valid() {
		return 0
	}
	return shapes[t].fds
}

func (t Type) String() string {
	if !t.valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return shapes[t].name
}

// Reason says why an offer or a listener was refused.
type Reason uint8

// The reasons. The zero Reason is invalid.
const (
	NoListener  Reason = iota + 1 // nobody takes direct connections there
	Expired                       // nobody claimed it
	Unreachable                   // the peer's node
	TooMany                       // of this client's
	NotOwner                      // of such a socket
	BadSegment                    // or doorbell
	NoRule                        // sends it to the server's host through the fabric
	NoPair                        // the agent does not know the other end of the connection
	SwitchedOff                   // by an operator (broker.Switch)
)

func (r Reason) String() string {
	switch r {
	case NoListener:
		return "no direct listener there"
	case Expired:
		return "not claimed in time"
	case Unreachable:
		return "the peer's node cannot be reached"
	case TooMany:
		return "too many"
	case NotOwner:
		return "not a socket of this namespace"
	case BadSegment:
		return "bad segment or doorbell"
	case NoRule:
		return "no rule for the fabric"
	case NoPair:
		return "the other end is not known"
	case SwitchedOff:
		return "direct sockets are switched off"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Nonce names an incarnation of a connection.
type Nonce [16]byte

// Message is a message of any type, without its descriptors. The fields that its
// type does not have are zero.
type Message struct {
	Type     Type
	Version  uint8  // of the session; Hello: the oldest that the client speaks. 0: the oldest of Versions
	ID       uint32 // Hello: the newest version that the client speaks
	Program  string // Hello: up to 16 bytes
	Node     uint16 // Welcome
	Features uint32 // Welcome
	Nonce    Nonce  // Offer, Withdraw, Grant, Flow
	// Listen, Offer, Claim, Grant, Flow: the ends of the connection. Listen with a listening
	// socket: Server is its address, Client is zero.
	Client, Server netip.AddrPort
	Interface      uint32 // Listen, Offer, Claim: index of the one that the socket is bound to; 0: none
	UDP            bool   // Listen, Offer, Claim: the socket is of UDP, else of TCP
	KnowsFlow      bool   // Claim of UDP: the client reads Flow
	Cookie         uint64 // Flow: of the sender's socket (SO_COOKIE), as the broker has just seen it
	Reason         Reason // Refused
}

// Greeting is the HELLO of a program.
func Greeting(program string) Message {
	return Message{Type: Hello, Version: Versions.Oldest, ID: uint32(Versions.Newest), Program: program}
}

// Agreed is the version of a session that begins with this HELLO. ok: there is one.
func (m Message) Agreed() (version uint8, ok bool) {
	return Versions.Common(rpc.Said(m.Version, uint64(m.ID)))
}

// AppendBinary implements encoding.BinaryAppender. It does not allocate when b has
// room.
func (m Message) AppendBinary(b []byte) ([]byte, error) {
	if !m.Type.valid() {
		return b, fmt.Errorf("%w: %v", ErrMessage, m.Type)
	}
	if m.Version == 0 {
		m.Version = Versions.Oldest
	}
	b = append(b, uint8(m.Type), m.Version)
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Type.Len()))
	b = binary.LittleEndian.AppendUint32(b, m.ID)
	switch m.Type {
	case Hello:
		var name [16]byte
		copy(name[:], m.Program)
		b = append(b, name[:]...)
	case Welcome:
		b = binary.LittleEndian.AppendUint16(b, m.Node)
		b = append(b, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, m.Features)
	case Listen, Claim:
		b = AppendEnds(b, m.Client, m.Server)
		b = binary.LittleEndian.AppendUint32(b, m.socketWord())
	case Offer:
		b = append(b, m.Nonce[:]...)
		b = AppendEnds(b, m.Client, m.Server)
		b = binary.LittleEndian.AppendUint32(b, m.socketWord())
	case Withdraw:
		b = append(b, m.Nonce[:]...)
	case Grant, Flow:
		b = append(b, m.Nonce[:]...)
		b = AppendEnds(b, m.Client, m.Server)
		if m.Type == Flow {
			b = binary.LittleEndian.AppendUint64(b, m.Cookie)
		}
	case Refused:
		b = append(b, uint8(m.Reason))
	}
	return b, nil
}

// UnmarshalBinary decodes b, which is one whole message. It keeps no reference to b
// and leaves m unchanged on error.
func (m *Message) UnmarshalBinary(b []byte) error {
	if len(b) < HeaderLen {
		return fmt.Errorf("%w: %d bytes: %w", ErrMessage, len(b), io.ErrUnexpectedEOF)
	}
	n := Message{Type: Type(b[typeOff]), Version: b[versionOff], ID: binary.LittleEndian.Uint32(b[idOff:])}
	known := Versions.Has(n.Version)
	if n.Type == Hello && n.Version > 0 {
		_, known = n.Agreed()
	}
	if !known {
		return fmt.Errorf("%w: version %d, this speaks %v", ErrMessage, n.Version, Versions)
	}
	if !n.Type.valid() {
		return fmt.Errorf("%w: %v", ErrMessage, n.Type)
	}
	want := n.Type.Len()
	if len(b) < want {
		return fmt.Errorf("%w: %v of %d bytes: %w", ErrMessage, n.Type, len(b), io.ErrUnexpectedEOF)
	}
	if got := int(binary.LittleEndian.Uint16(b[lengthOff:])); got != want || len(b) != want {
		return fmt.Errorf("%w: %v of %d bytes says %d, has %d", ErrMessage, n.Type, len(b), got, want)
	}
	switch n.Type {
	case Hello:
		n.Program, _, _ = strings.Cut(string(b[programOff:programOff+16]), "\x00")
	case Welcome:
		n.Node = binary.LittleEndian.Uint16(b[nodeOff:])
		n.Features = binary.LittleEndian.Uint32(b[featuresOff:])
	case Listen, Claim:
		n.Client, n.Server = ParseEnds(b[shownOff:])
		n.setSocketWord(binary.LittleEndian.Uint32(b[shownOff+EndsLen:]))
		if (n.Type == Listen || n.UDP) && n.Client.Port() == 0 {
			n.Client = netip.AddrPort{}
		}
	case Offer:
		n.Nonce = Nonce(b[nonceOff:])
		n.Client, n.Server = ParseEnds(b[endsOff:])
		n.setSocketWord(binary.LittleEndian.Uint32(b[endsOff+EndsLen:]))
	case Withdraw:
		n.Nonce = Nonce(b[nonceOff:])
	case Grant, Flow:
		n.Nonce = Nonce(b[nonceOff:])
		n.Client, n.Server = ParseEnds(b[endsOff:])
		if n.Type == Flow {
			n.Cookie = binary.LittleEndian.Uint64(b[cookieOff:])
		}
	case Refused:
		n.Reason = Reason(b[reasonOff])
		if n.Reason == 0 {
			return fmt.Errorf("%w: %v without a reason", ErrMessage, n.Type)
		}
	}
	*m = n
	return nil
}

// socketWord has the interface and the protocol.
func (m Message) socketWord() uint32 {
	w := m.Interface
	if m.UDP {
		w |= udpBit
	}
	if m.KnowsFlow {
		w |= flowBit
	}
	return w
}

func (m *Message) setSocketWord(w uint32) {
	m.Interface, m.UDP = w&^udpBit, w&udpBit != 0
	if m.UDP {
		m.Interface, m.KnowsFlow = m.Interface&^flowBit, w&flowBit != 0
	}
}

// EndsLen is the length of the ends of a connection.
const EndsLen = 16 + 16 + 2 + 2

// AppendEnds appends them as a segment's header has them: address of side 0, of
// side 1 (IPv4 as ::ffff:a.b.c.d), port of side 0, of side 1.
func AppendEnds(b []byte, client, server netip.AddrPort) []byte {
	b = AppendAddr(AppendAddr(b, client.Addr()), server.Addr())
	b = binary.LittleEndian.AppendUint16(b, client.Port())
	return binary.LittleEndian.AppendUint16(b, server.Port())
}

func ParseEnds(b []byte) (client, server netip.AddrPort) {
	a0, a1 := netip.AddrFrom16([16]byte(b)).Unmap(), netip.AddrFrom16([16]byte(b[16:])).Unmap()
	return netip.AddrPortFrom(a0, binary.LittleEndian.Uint16(b[32:])),
		netip.AddrPortFrom(a1, binary.LittleEndian.Uint16(b[34:]))
}

// AppendAddr appends the 16 bytes of an address; those of the zero Addr are zero.
func AppendAddr(b []byte, a netip.Addr) []byte {
	if !a.IsValid() {
		return append(b, make([]byte, 16)...)
	}
	raw := a.As16()
	return append(b, raw[:]...)
}

// String names the message for people.
func (m Message) String() string { return fmt.Sprintf("%v %d", m.Type, m.ID) }

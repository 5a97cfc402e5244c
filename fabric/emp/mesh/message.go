package mesh

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// Version is that of the protocol between hosts. Nodes of different versions do not
// meet.
const Version = 1

// A message is a header and a text in JSON. The header stays as it is in all versions.
// Numbers are big-endian.
//
//	 0       4         6      8        12
//	┌───────┬─────────┬──────┬────────┬──────────────┐
//	│ magic │ version │ zero │ length │ text         │
//	└───────┴─────────┴──────┴────────┴──────────────┘
const (
	magicOff   = 0
	versionOff = 4
	lengthOff  = 8
	headerLen  = 12

	magic = "EXNH"
)

const (
	// maxHello bounds the first message of each side.
	maxHello = 16 << 10
	// maxMessage bounds those that follow, of a member.
	maxMessage = 1 << 20
	// MaxText is how long a Request and its answer are at most, in bytes.
	MaxText = maxMessage - 1024
	// maxRumors is how many rumors a message has: at most 200 bytes each.
	maxRumors = maxMessage / 256
	// maxGroups bounds how many IP groups a member is in.
	maxGroups = 4096
)

// Kinds of connections, as the side that dials says.
const (
	kindAsk     = "ask"     // whether this node may join; nothing follows
	kindControl = "control" // membership
	kindData    = "data"    // of a link
)

// hello is the first message of each side, the dialing one's first.
type hello struct {
	Kind   string          `json:"kind"`
	Fabric string          `json:"fabric"`
	Self   emp.Description `json:"self"`
	Host   netip.Addr      `json:"host,omitzero"` // where it listens, if that is one address
	Port   uint16          `json:"port"`
	Clock  int64           `json:"clock"` // nanoseconds
	// All asks for all rumors.
	All bool `json:"all,omitempty"`

	// Of the side that was dialed.
	Refused string `json:"refused,omitempty"` // why there is no connection
	Code    string `json:"code,omitempty"`    // what that means to a program
	Shared  bool   `json:"shared,omitempty"`  // both are nodes of one directory, which links them
	// Cookie is what the data connections of this control connection show.
	Cookie string `json:"cookie,omitempty"`

	// Of data connections: which one of how many.
	Index int `json:"index,omitempty"`
	Of    int `json:"of,omitempty"`
}

// Codes of a refusal.
const (
	codeFinal = "final" // so it will be the next time: the ID or an address is taken, say
	codeSelf  = "self"  // both are one node
	codeTwice = "twice" // there is another connection, which stays
)

// news is each message that follows on a control connection. Any of its fields may be
// there; one without any is a sign of life.
type news struct {
	Rumors []Rumor `json:"rumors,omitempty"`
	// Digest asks for all rumors if this node's own is another.
	Digest *uint64 `json:"digest,string,omitempty"`
	// Reply asks for all rumors in any case.
	Reply bool `json:"reply,omitempty"`
	// Groups are the IP multicast groups that the sender is in; nil: no change.
	Groups *[]netip.Addr `json:"groups,omitempty"`
	// Leave says that the sender leaves the fabric.
	Leave bool `json:"leave,omitempty"`
	// Rival is another living node that says that it has the receiver's ID.
	Rival *netip.AddrPort `json:"rival,omitempty"`
	// Probe asks for a sign of life.
	Probe bool `json:"probe,omitempty"`
	// Cert is the sender's certificate of now, for the key that it has shown.
	Cert []byte `json:"cert,omitempty"`
	// Request is for who uses the Mesh; Answer has the ID of the one that it answers.
	Request *parcel `json:"request,omitempty"`
	Answer  *parcel `json:"answer,omitempty"`
}

// parcel is something that the Mesh does not look into.
type parcel struct {
	ID   uint64          `json:"id"`
	Text json.RawMessage `json:"text"`
}

// appendMessage appends the encoding of a message to b.
func appendMessage(b []byte, m any) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return b, fmt.Errorf("mesh: %w", err)
	}
	if len(text) > maxMessage {
		return b, fmt.Errorf("mesh: a message of %d bytes: %w", len(text), fabric.ErrInvalid)
	}
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, Version)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...), nil
}

// sendMessage writes a message.
func sendMessage(w io.Writer, m any) error {
	b, err := appendMessage(nil, m)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// receiveMessage reads a message of at most limit bytes into m. emp.ErrVersion, emp.ErrHello:
// it is none, or none of this version.
func receiveMessage(r io.Reader, limit int, m any) error {
	text, err := receiveText(r, limit)
	if err != nil {
		return err
	}
	return parseMessage(text, m)
}

// receiveText reads the text of a message.
func receiveText(r io.Reader, limit int) ([]byte, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	if string(h[magicOff:versionOff]) != magic {
		return nil, fmt.Errorf("%w: unknown first bytes %x", emp.ErrHello, h[:versionOff])
	}
	n := binary.BigEndian.Uint32(h[lengthOff:])
	if v := binary.BigEndian.Uint16(h[versionOff:]); v != Version {
		// What is left unread would have the kernel reset the connection, and the answer
		// would be lost.
		_, _ = io.CopyN(io.Discard, r, min(int64(n), int64(limit)))
		return nil, fmt.Errorf("%w (its protocol between hosts is %d, here it is %d): update one of them", emp.ErrVersion, v, Version)
	}
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: a message of %d bytes, more than %d", emp.ErrHello, n, limit)
	}
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return text, err
}

func parseMessage(text []byte, m any) error {
	if err := json.Unmarshal(text, m); err != nil {
		return fmt.Errorf("%w: %w", emp.ErrHello, err)
	}
	return nil
}

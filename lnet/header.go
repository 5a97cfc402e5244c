package lnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"exnet/fabric"
)

// Sizes of the format.
const (
	// HeaderLen is the length of an LNET header (lnet_hdr).
	HeaderLen = 72
	// AdvertLen is the length of the VELO message that begins a rendezvous: the
	// header and an NLA.
	AdvertLen = HeaderLen + 8
	// MaxPayload is the most that a message carries (LNET_MAX_PAYLOAD).
	MaxPayload = 1 << 20
	// MaxPages is the most pages that it lies in (LNET_MAX_IOV).
	MaxPages = 256
)

// MessageType is the type of a message (lnet_msg_type; table 6.1).
type MessageType uint32

// The types of messages, with Lustre's numbers.
const (
	MessageAck   MessageType = iota // LNET_MSG_ACK
	MessagePut                      // LNET_MSG_PUT
	MessageGet                      // LNET_MSG_GET
	MessageReply                    // LNET_MSG_REPLY
)

// NetworkType is the type of the network "ex" (listing 6.4). Lustre assigns none.
const NetworkType = 'E'<<8 | 'X'

// NID is the ID of a node in a network (lnet_nid_t): the network's type in bits 48 to
// 63, its number in bits 32 to 47, and the address below.
type NID uint64

// NIDOf returns the NID of a node of the network ex0.
func NIDOf(n fabric.NodeID) NID { return NetworkType<<48 | NID(n) }

// String returns the NID as Lustre writes it, such as 3@ex.
func (n NID) String() string {
	if n>>48 != NetworkType {
		return fmt.Sprintf("%#x", uint64(n))
	}
	if number := uint16(n >> 32); number != 0 {
		return fmt.Sprintf("%d@ex%d", uint32(n), number)
	}
	return fmt.Sprintf("%d@ex", uint32(n))
}

// Handle names a memory descriptor of the initiator (lnet_handle_wire).
type Handle struct {
	Interface uint64 // this incarnation of the interface (wh_interface_cookie)
	Object    uint64 // wh_object_cookie
}

// NoHandle is that of a Put that wants no ACK (LNET_WIRE_HANDLE_COOKIE_NONE).
var NoHandle = Handle{^uint64(0), ^uint64(0)}

// Header begins a message (lnet_hdr). All integers are little endian:
//
//	 0 Dst 8 · 8 Src 8 · 16 DstPID 4 · 20 SrcPID 4 · 24 Type 4 · 28 PayloadLength 4
//	ACK    32 Handle 16 · 48 MatchBits 8 · 56 Length 4
//	PUT    32 Handle 16 · 48 MatchBits 8 · 56 HdrData 8 · 64 Portal 4 · 68 Offset 4
//	GET    32 Handle 16 · 48 MatchBits 8 · 56 Portal 4  · 60 Offset 4 · 64 Length 4
//	REPLY  32 Handle 16
type Header struct {
	Dst, Src       NID
	DstPID, SrcPID uint32
	Type           MessageType
	PayloadLength  uint32 // bytes that the message carries (PUT, REPLY)
	Handle         Handle // of the initiator's descriptor (ack_wmd, return_wmd, dst_wmd)
	MatchBits      uint64 // ACK, PUT, GET
	HdrData        uint64 // PUT: for the target's event
	Portal         uint32 // PUT, GET (ptl_index)
	Offset         uint32 // PUT, GET: in a descriptor whose offset is the initiator's
	Length         uint32 // GET: bytes asked for (sink_length); ACK: bytes taken (mlength)
}

// ErrHeader says that a header has an impossible type or length.
var ErrHeader = errors.New("lnet: impossible header")

func (h *Header) check() error {
	switch {
	case h.Type > MessageReply:
		return fmt.Errorf("%w: type %d", ErrHeader, h.Type)
	case h.PayloadLength > MaxPayload || h.Length > MaxPayload:
		return fmt.Errorf("%w: more than %d bytes", ErrHeader, MaxPayload)
	case h.PayloadLength > 0 && (h.Type == MessageAck || h.Type == MessageGet):
		return fmt.Errorf("%w: an ACK or GET with %d bytes", ErrHeader, h.PayloadLength)
	}
	return nil
}

// AppendBinary appends the encoding of h to b.
func (h Header) AppendBinary(b []byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return b, err
	}
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(h.Dst))
	b = le.AppendUint64(b, uint64(h.Src))
	b = le.AppendUint32(b, h.DstPID)
	b = le.AppendUint32(b, h.SrcPID)
	b = le.AppendUint32(b, uint32(h.Type))
	b = le.AppendUint32(b, h.PayloadLength)
	b = le.AppendUint64(b, h.Handle.Interface)
	b = le.AppendUint64(b, h.Handle.Object)
	var rest [24]byte
	switch h.Type {
	case MessageAck:
		le.PutUint64(rest[0:], h.MatchBits)
		le.PutUint32(rest[8:], h.Length)
	case MessagePut:
		le.PutUint64(rest[0:], h.MatchBits)
		le.PutUint64(rest[8:], h.HdrData)
		le.PutUint32(rest[16:], h.Portal)
		le.PutUint32(rest[20:], h.Offset)
	case MessageGet:
		le.PutUint64(rest[0:], h.MatchBits)
		le.PutUint32(rest[8:], h.Portal)
		le.PutUint32(rest[12:], h.Offset)
		le.PutUint32(rest[16:], h.Length)
	}
	return append(b, rest[:]...), nil
}

// UnmarshalBinary decodes the first HeaderLen bytes of b. It ignores what a type does not
// use, and leaves h unchanged on error: io.ErrUnexpectedEOF or ErrHeader.
func (h *Header) UnmarshalBinary(b []byte) error {
	if len(b) < HeaderLen {
		return fmt.Errorf("lnet: header of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	le := binary.LittleEndian
	d := Header{
		Dst: NID(le.Uint64(b)), Src: NID(le.Uint64(b[8:])),
		DstPID: le.Uint32(b[16:]), SrcPID: le.Uint32(b[20:]),
		Type: MessageType(le.Uint32(b[24:])), PayloadLength: le.Uint32(b[28:]),
		Handle: Handle{le.Uint64(b[32:]), le.Uint64(b[40:])},
	}
	switch d.Type {
	case MessageAck:
		d.MatchBits, d.Length = le.Uint64(b[48:]), le.Uint32(b[56:])
	case MessagePut:
		d.MatchBits, d.HdrData = le.Uint64(b[48:]), le.Uint64(b[56:])
		d.Portal, d.Offset = le.Uint32(b[64:]), le.Uint32(b[68:])
	case MessageGet:
		d.MatchBits, d.Portal = le.Uint64(b[48:]), le.Uint32(b[56:])
		d.Offset, d.Length = le.Uint32(b[60:]), le.Uint32(b[64:])
	}
	if err := d.check(); err != nil {
		return err
	}
	*h = d
	return nil
}

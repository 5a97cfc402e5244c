package rma

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"exnet/fabric"
	"exnet/fabric/atu"
)

const (
	// MTU is the payload of one RMA packet: 512 bytes less the network descriptor
	// of 16 (thesis 3.2.1.2).
	MTU = 512 - 16
	// MaxTransfer is the most that one operation moves.
	MaxTransfer = 8 << 20
	// MaxImmediate is the payload of an immediate PUT, 72 bits.
	MaxImmediate = 9
	// NotificationSize is the size of a notification: two 64-bit words.
	NotificationSize = 16
)

// LastFragment returns the address of the last packet of a transfer of n bytes, n > 0,
// that starts at start (equations 5.1 and 5.2). Notifications carry this address.
func LastFragment(start atu.NLA, n int) atu.NLA {
	rest := n % MTU
	if rest == 0 {
		return start + atu.NLA(n-MTU)
	}
	return start + atu.NLA(n-rest)
}

// Writer is the part of the RMA unit that wrote a notification. The zero Writer
// is invalid.
type Writer uint8

// The writers of notifications.
const (
	Requester Writer = iota + 1
	Completer
	Responder
)

// String returns the writer's name.
func (w Writer) String() string {
	switch w {
	case Requester:
		return "requester"
	case Completer:
		return "completer"
	case Responder:
		return "responder"
	}
	return "writer(" + strconv.Itoa(int(w)) + ")"
}

// Command is an RMA operation. The zero Command is invalid.
type Command uint8

// The commands.
const (
	CommandGet Command = iota + 1
	CommandPut
	CommandPutImmediate
)

// String returns the command's name.
func (c Command) String() string {
	switch c {
	case CommandGet:
		return "get"
	case CommandPut:
		return "put"
	case CommandPutImmediate:
		return "put-immediate"
	}
	return "command(" + strconv.Itoa(int(c)) + ")"
}

// Notification reports an operation to one of its ends:
//
//	 63 62     58 57 56 55  52 51          42 41 40 39        24 23            0
//	┌──┬─────────┬─────┬──────┬──────────────┬─────┬────────────┬───────────────┐
//	│ P│ reserved│ who │status│ VPID      10 │ cmd │ node    16 │ length     24 │ word 0
//	├──┴─────────┴─────┴──────┴──────────────┴─────┴────────────┴───────────────┤
//	│ local address                                                          64 │ word 1
//	└───────────────────────────────────────────────────────────────────────────┘
//
// The thesis gives the size, the local address and its meaning; the layout is
// exnet's. P is the phase bit of the queue, not part of the Notification.
type Notification struct {
	Writer  Writer        // who wrote it
	Command Command       // of the operation
	Status  fabric.Status // how it ended
	Node    fabric.NodeID // the other end of the operation
	VPID    fabric.VPID   // the other end's mailbox
	Len     int           // bytes of the whole operation

	// Local is the address of the last fragment in this end's memory, whoever wrote the
	// notification (5.4.2.1; 6.5.2 gives the requester's the start address). That memory was
	// written if a completer wrote it, and read otherwise. 0 for the requester of an immediate PUT.
	Local atu.NLA
}

// Positions of the fields of word 0.
const (
	notifNodeShift   = 24
	notifCmdShift    = 40
	notifVPIDShift   = 42
	notifStatusShift = 52
	notifWriterShift = 56
	phaseBit         = 1 << 63

	notifLenMask    = 1<<24 - 1
	notifCmdMask    = 1<<2 - 1
	notifVPIDMask   = 1<<10 - 1
	notifStatusMask = 1<<4 - 1
	notifWriterMask = 1<<2 - 1
)

func (n *Notification) valid() bool {
	return n.Writer >= Requester && n.Writer <= Responder &&
		n.Command >= CommandGet && n.Command <= CommandPutImmediate &&
		n.Status.Valid() && n.VPID.Valid() && n.Len >= 1 && n.Len <= MaxTransfer
}

func (n *Notification) word() uint64 {
	return uint64(n.Len) | uint64(n.Node)<<notifNodeShift | uint64(n.Command)<<notifCmdShift |
		uint64(n.VPID)<<notifVPIDShift | uint64(n.Status)<<notifStatusShift | uint64(n.Writer)<<notifWriterShift
}

func notificationOf(w uint64, local atu.NLA) Notification {
	return Notification{
		Writer:  Writer(w >> notifWriterShift & notifWriterMask),
		Command: Command(w >> notifCmdShift & notifCmdMask),
		Status:  fabric.Status(w >> notifStatusShift & notifStatusMask),
		Node:    fabric.NodeID(w >> notifNodeShift),
		VPID:    fabric.VPID(w >> notifVPIDShift & notifVPIDMask),
		Len:     int(w & notifLenMask),
		Local:   local,
	}
}

// AppendBinary appends the encoding of n, phase bit 0, to b as two little-endian
// quad words.
func (n Notification) AppendBinary(b []byte) ([]byte, error) {
	if !n.valid() {
		return b, fmt.Errorf("rma: notification %+v: %w", n, fabric.ErrInvalid)
	}
	b = binary.LittleEndian.AppendUint64(b, n.word())
	return binary.LittleEndian.AppendUint64(b, uint64(n.Local)), nil
}

// UnmarshalBinary decodes the first NotificationSize bytes of b. The phase bit and
// reserved bits are ignored. It leaves n unchanged on error.
func (n *Notification) UnmarshalBinary(b []byte) error {
	if len(b) < NotificationSize {
		return fmt.Errorf("rma: notification of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	v := notificationOf(binary.LittleEndian.Uint64(b), atu.NLA(binary.LittleEndian.Uint64(b[8:])))
	if !v.valid() {
		return fmt.Errorf("rma: notification %+v: %w", v, fabric.ErrInvalid)
	}
	*n = v
	return nil
}

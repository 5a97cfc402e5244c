package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"exnet/fabric"
	"exnet/node/rpc"
)

// Versions are those of the messages.
var Versions = rpc.Versions{Oldest: 1, Newest: 1}

// PageSize is the unit of a lease; HugeSize is that of one with huge pages.
const (
	PageSize = 4096
	HugeSize = 2 << 20
)

// MessageSize is the size of a message, and Descriptors how many descriptors one has at most.
const (
	MessageSize = 64
	Descriptors = 3
)

// The window of a lease of another host: slots, each for one operation at a time, which has up to
// Span of them in a row.
const (
	Slots      = 64
	Span       = 8
	SlotSize   = 256 << 10
	WindowSize = Slots * SlotSize
	// PartSize is a part of such a lease. No operation crosses from one to the next.
	PartSize = 1 << 30
)

// ErrMessage says that a message breaks the rules. End the connection.
var ErrMessage = errors.New("memory: malformed message")

// Op is what a message is about. The zero Op is invalid.
type Op uint16

// The messages, as in SPEC.md 1.
const (
	OpBorrow Op = 1 // process: a lease; reply: what it got, and the memory
	OpReturn Op = 2 // process, borrower's node: the lease is given back
	OpRevoke Op = 3 // lender, node: give it back until then
	OpGone   Op = 4 // lender, node: the lease has ended
	OpGet    Op = 5 // process: read from the lease into a slot of the window
	OpPut    Op = 6 // process: write a slot of the window to the lease
	OpZero   Op = 7 // process, node: whole pages become zeros, and go back
	OpHello  Op = 32
	OpOffer  Op = 33 // node: how much would you lend? reply: that much
	OpLend   Op = 34 // node: OpBorrow of one of its processes
	OpRenew  Op = 35 // node: the borrower lives; reply: the lease is still there
)

// Status is how a request ended, or why a lease did.
type Status uint16

// The values of Status.
const (
	StatusOK       Status = iota
	StatusVersion         // the other end has another Version
	StatusFull            // less than that is left; B: what is
	StatusLimit           // the borrower's node or user has reached its limit; B: what is left of it
	StatusNoNode          // the lender is not there
	StatusNoLender        // no node lends anything
	StatusInvalid         // the request breaks the rules
	StatusHuge            // no huge pages are left
	StatusBusy            // too many leases of this user
	StatusNoLease         // there is no such lease any more
	StatusRevoked         // the lender has taken the memory back
	StatusExpired         // the lease's time is over
	StatusLost            // the lender is gone, and the content with it
	StatusMemory          // the lender's host has no memory left
	statuses
)

// Flags of OpBorrow and OpLend.
const (
	FlagNode uint16 = 1 << iota // Node is the lender that is wanted
	FlagHuge                    // huge pages
	FlagFar                     // reply: the memory is on another host, and reached by the node
)

// Message is what both ends say. Its fields are those of SPEC.md 1.
type Message struct {
	Op               Op
	Status           Status
	Number           uint32
	Node             fabric.NodeID
	Flags            uint16
	Account          uint32
	A, B, C, D, E, F uint64
}

// Offering returns m, a request, with the versions that its sender speaks.
func (m Message) Offering() Message {
	m.A, m.F = uint64(Versions.Oldest), uint64(Versions.Newest)
	return m
}

// AppendBinary appends the encoding of m to b. It does not fail.
func (m Message) AppendBinary(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	b = le.AppendUint16(b, uint16(m.Op))
	b = le.AppendUint16(b, uint16(m.Status))
	b = le.AppendUint32(b, m.Number)
	b = le.AppendUint16(b, uint16(m.Node))
	b = le.AppendUint16(b, m.Flags)
	b = le.AppendUint32(b, m.Account)
	for _, v := range [...]uint64{m.A, m.B, m.C, m.D, m.E, m.F} {
		b = le.AppendUint64(b, v)
	}
	return b, nil
}

// UnmarshalBinary decodes the first MessageSize bytes of b. It leaves m unchanged on error.
func (m *Message) UnmarshalBinary(b []byte) error {
	if len(b) < MessageSize {
		return fmt.Errorf("%w: %d bytes: %w", ErrMessage, len(b), io.ErrUnexpectedEOF)
	}
	le := binary.LittleEndian
	n := Message{
		Op: Op(le.Uint16(b)), Status: Status(le.Uint16(b[2:])), Number: le.Uint32(b[4:]),
		Node: fabric.NodeID(le.Uint16(b[8:])), Flags: le.Uint16(b[10:]), Account: le.Uint32(b[12:]),
		A: le.Uint64(b[16:]), B: le.Uint64(b[24:]), C: le.Uint64(b[32:]),
		D: le.Uint64(b[40:]), E: le.Uint64(b[48:]), F: le.Uint64(b[56:]),
	}
	if n.Op == 0 || n.Status >= statuses {
		return fmt.Errorf("%w: operation %d, status %d", ErrMessage, n.Op, n.Status)
	}
	*m = n
	return nil
}

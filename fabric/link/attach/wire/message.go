package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"exnet/fabric"
	"exnet/node/rpc"
)

// Version is the newest version of the messages and layouts.
const Version = 1

// Versions are those that are spoken.
var Versions = rpc.Versions{Oldest: 1, Newest: Version}

// Op is what a message is about. The zero Op is invalid.
type Op uint16

// The messages, as in SPEC.md 1.
const (
	OpOpen         Op = 1  // process: a port; reply: VPID, page, bell, memory
	OpConnect      Op = 2  // process: a peer; reply: flow, bell, memory
	OpProtect      Op = 3  // process: its protection ID
	OpRegister     Op = 4  // process: read or write a register of a node
	OpMember       Op = 5  // process: a member of a multicast group
	OpReach        Op = 6  // process: the node may read and write its memory
	OpTransfer     Op = 7  // process: to or from pages of a peer that are in their place
	OpFlow         Op = 16 // node: a peer has connected; its flow
	OpGone         Op = 17 // node: a peer has ended
	OpHello        Op = 32 // node to node: who it is
	OpPeerConnect  Op = 33 // node to node: OpConnect of one of its ports
	OpPeerGone     Op = 34 // node to node: one of its ports has ended
	OpPeerTransfer Op = 35 // node to node: OpTransfer of one of its ports
	OpFarConnect   Op = 48 // to a node of another host: OpPeerConnect
	OpFarGone      Op = 49 // the same: OpPeerGone
	OpFarPut       Op = 50 // PUT
	OpFarGet       Op = 51 // GET
	OpFarTell      Op = 52 // a slot of a flow: a VELO message, a notification
	OpFarLock      Op = 53 // a lock
	OpFarGive      Op = 54 // GET: the far node moves the bytes by RMA to memory that it is lent
	OpFarTake      Op = 55 // PUT: the far node moves the bytes by RMA from memory that it is lent
	OpFarSlot      Op = 56 // a VELO message, as a Slot; OpFarTaken answers many
	OpFarTaken     Op = 57 // how many of them are in the port's flow
)

// Status is how a request ended.
type Status uint16

// The values of Status.
const (
	StatusOK      Status = iota
	StatusVersion        // the other end has another Version
	StatusNoPort         // the VPID is not open
	StatusDenied         // the port is another user's, or has another protection ID
	StatusFull           // no VPID is left, or the user has too many
	StatusNoNode         // the node is not on this host
	StatusInvalid        // the request breaks the rules
	StatusInUse          // another port has the VPID that was wanted
)

// Unit is the functional unit of a port; fabric.Unit has the names.
type Unit = fabric.Unit

// Addr is the address of a port.
type Addr struct {
	Node fabric.NodeID
	VPID fabric.VPID
}

// String is node:VPID.
func (a Addr) String() string { return fmt.Sprintf("%d:%d", a.Node, a.VPID) }

// Descriptors is the largest number of descriptors of a message.
const Descriptors = 4

// MessageSize is the size of every message.
const MessageSize = 48

// Message is a message:
//
//	 0       2         4         8       10      12      14          16   24   32   40   48
//	┌───────┬─────────┬─────────┬───────┬───────┬───────┬───────────┬────┬────┬────┬────┐
//	│ op    │ status  │ number  │ node  │ VPID  │ unit  │ reserved  │ A  │ B  │ C  │ D  │
//	└───────┴─────────┴─────────┴───────┴───────┴───────┴───────────┴────┴────┴────┴────┘
//
// in little endian. A reply has the number of its request.
type Message struct {
	Op     Op
	Status Status
	Number uint32
	Addr   Addr
	Unit   Unit
	A      uint64
	B      uint64
	C      uint64
	D      uint64
}

// SlotWord are the bits of a VELO slot's status word that a Slot carries.
const SlotWord = 1<<21 - 1

// SlotSize is the size of a Slot, without the message that follows it.
const SlotSize = 16

// Slot is OpFarSlot, which has a form of its own, in little endian:
//
//	 0     2      4    6          8        12     16
//	┌─────┬──────┬────┬──────────┬────────┬──────┬─────────┐
//	│ op  │ from │ to │ reserved │ stream │ word │ message │
//	└─────┴──────┴────┴──────────┴────────┴──────┴─────────┘
type Slot struct {
	From, To fabric.VPID
	Stream   uint32 // of a pair of ports: the sender's number for it
	Word     uint32 // bits 0-20 of the slot's status word
}

// Put encodes the slot to b.
func (s Slot) Put(b *[SlotSize]byte) {
	le := binary.LittleEndian
	le.PutUint16(b[:], uint16(OpFarSlot))
	le.PutUint16(b[2:], uint16(s.From))
	le.PutUint16(b[4:], uint16(s.To))
	le.PutUint16(b[6:], 0)
	le.PutUint32(b[8:], s.Stream)
	le.PutUint32(b[12:], s.Word)
}

// CutSlot decodes the slot that b begins with, and lends the message. ok: b begins with one.
func CutSlot(b []byte) (s Slot, message []byte, ok bool) {
	le := binary.LittleEndian
	if len(b) < SlotSize || Op(le.Uint16(b)) != OpFarSlot {
		return Slot{}, nil, false
	}
	return Slot{
		From: fabric.VPID(le.Uint16(b[2:])), To: fabric.VPID(le.Uint16(b[4:])),
		Stream: le.Uint32(b[8:]), Word: le.Uint32(b[12:]),
	}, b[SlotSize:], true
}

// ErrMessage reports bytes that are no message of this version. The caller ends the connection.
var ErrMessage = errors.New("ports: malformed message")

// AppendBinary appends the encoding of m to b. It does not fail.
func (m Message) AppendBinary(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	b = le.AppendUint16(b, uint16(m.Op))
	b = le.AppendUint16(b, uint16(m.Status))
	b = le.AppendUint32(b, m.Number)
	b = le.AppendUint16(b, uint16(m.Addr.Node))
	b = le.AppendUint16(b, uint16(m.Addr.VPID))
	b = le.AppendUint16(b, uint16(m.Unit))
	b = le.AppendUint16(b, 0)
	for _, v := range []uint64{m.A, m.B, m.C, m.D} {
		b = le.AppendUint64(b, v)
	}
	return b, nil
}

// UnmarshalBinary decodes b, which is one message. The reserved field is ignored. It leaves m
// unchanged on error.
func (m *Message) UnmarshalBinary(b []byte) error {
	if len(b) < MessageSize {
		return fmt.Errorf("%w of %d bytes: %w", ErrMessage, len(b), io.ErrUnexpectedEOF)
	}
	le := binary.LittleEndian
	v := Message{
		Op: Op(le.Uint16(b)), Status: Status(le.Uint16(b[2:])), Number: le.Uint32(b[4:]),
		Addr: Addr{fabric.NodeID(le.Uint16(b[8:])), fabric.VPID(le.Uint16(b[10:]))},
		A:    le.Uint64(b[16:]), B: le.Uint64(b[24:]), C: le.Uint64(b[32:]), D: le.Uint64(b[40:]),
	}
	unit := le.Uint16(b[12:])
	switch {
	case len(b) > MessageSize:
		return fmt.Errorf("%w of %d bytes", ErrMessage, len(b))
	case v.Op == 0:
		return fmt.Errorf("%w: no operation", ErrMessage)
	case unit > uint16(fabric.UnitRMA):
		return fmt.Errorf("%w: unit %d", ErrMessage, unit)
	}
	v.Unit = Unit(unit)
	*m = v
	return nil
}

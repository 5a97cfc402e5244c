package pager

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What preload/wire.h has.
const (
	wireMagic   = 0x6d656d31
	wireEntries = 64

	helloLen   = 4 + 4 + 4*8
	welcomeLen = 4 + 4
	entryLen   = 8 + 4 + 4
	headLen    = 4 + 4
	doneLen    = 4 + 4
	replyLen   = headLen + wireEntries*doneLen
)

// threadAt is where in the library's own memory its thread's ID is, which the kernel clears when
// the thread ends (preload/agent.h).
const threadAt = 120

// Operations of a command.
const (
	opMove uint32 = 1
	opDrop uint32 = 2
	opOwn  uint32 = 3
)

var errWire = errors.New("pager: not what the library of this exn-mem says")

// hello is the first message of a process.
type hello struct {
	why   uint32 // the number of the error of userfaultfd(2)
	token uint64
	// base to end is the library's own memory; its slots begin at slots, and the page that
	// children look at at mark.
	base, slots, end uint64
}

// parseHello reads and checks a hello.
func parseHello(raw []byte) (hello, error) {
	if len(raw) != helloLen || binary.NativeEndian.Uint32(raw) != wireMagic {
		return hello{}, errWire
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(raw[8+8*i:]) }
	h := hello{why: binary.NativeEndian.Uint32(raw[4:]), token: word(0), base: word(1), slots: word(2), end: word(3)}
	const highest = 1 << 56
	if h.base%pageSize|h.slots%pageSize|h.end%pageSize != 0 || h.base+2*pageSize > h.slots || h.slots+pageSize > h.end || h.end > highest || h.base == 0 {
		return hello{}, fmt.Errorf("%w: its memory is at %#x, %#x and %#x", errWire, h.base, h.slots, h.end)
	}
	return h, nil
}

// markAddress is the address of the page that children look at.
func (h hello) markAddress() uint64 { return h.base + pageSize }

// appendWelcome appends the answer to a hello.
func appendWelcome(to []byte, refused bool) []byte {
	to = binary.NativeEndian.AppendUint32(to, wireMagic)
	var no uint32
	if refused {
		no = 1
	}
	return binary.NativeEndian.AppendUint32(to, no)
}

// entry is a part of a command: count pages from address on, and slots from slot on.
type entry struct {
	address     uint64
	slot, count uint32
}

// appendCommand appends a command.
func appendCommand(to []byte, op uint32, entries []entry) []byte {
	to = binary.NativeEndian.AppendUint32(to, op)
	to = binary.NativeEndian.AppendUint32(to, uint32(len(entries)))
	for _, e := range entries {
		to = binary.NativeEndian.AppendUint64(to, e.address)
		to = binary.NativeEndian.AppendUint32(to, e.slot)
		to = binary.NativeEndian.AppendUint32(to, e.count)
	}
	return to
}

// done is what became of an entry: how many of its pages were moved, and why no more.
type done struct {
	count uint32
	errno uint32
}

// parseReply reads the reply to a command with these entries. No count in it is larger than what
// was asked for.
func parseReply(raw []byte, op uint32, entries []entry) ([]done, error) {
	if len(raw) != headLen+len(entries)*doneLen || binary.NativeEndian.Uint32(raw) != op || binary.NativeEndian.Uint32(raw[4:]) != uint32(len(entries)) {
		return nil, errWire
	}
	all := make([]done, len(entries))
	for i := range all {
		at := raw[headLen+i*doneLen:]
		all[i] = done{binary.NativeEndian.Uint32(at), binary.NativeEndian.Uint32(at[4:])}
		if all[i].count > entries[i].count {
			return nil, errWire
		}
	}
	return all, nil
}

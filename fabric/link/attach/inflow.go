package attach

import (
	"errors"
	"sync/atomic"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/rma"
	"exnet/foreign"
	"exnet/internal/shm"
)

// inflow is the flow of a peer to a port of this program: SPEC.md 2. It belongs to whoever
// polls, except for gone.
type inflow struct {
	port        *port
	from        wire.Addr
	memory      *shm.Foreign
	slots, size int
	pos         uint64
	gone        atomic.Bool // the peer has ended
	target      link.Flow   // of a VELO port; nil: nothing has arrived yet
}

func newInflow(p *port, from wire.Addr, m *shm.Foreign, slots, size int) *inflow {
	return &inflow{port: p, from: from, memory: m, slots: slots, size: size}
}

// slot is what the next message comes to.
func (f *inflow) slot() foreign.Memory { return slotOf(f.memory, f.pos, f.slots, f.size) }

func slotOf(m *shm.Foreign, pos uint64, slots, size int) foreign.Memory {
	return m.Memory().Part(wire.FlowHeader+int(pos&uint64(slots-1))*size, size)
}

// phaseOf is the phase bit of the message at pos: 1 in the first lap.
func phaseOf(pos uint64, slots int) uint64 {
	if pos&uint64(slots) == 0 {
		return wire.Phase
	}
	return 0
}

// takeStatus returns the status word of the next message; false: there is none.
func (f *inflow) takeStatus() (uint64, bool) {
	w := words(f.slot(), 0).Load()
	shm.Observe()
	return w &^ wire.Phase, w&wire.Phase == phaseOf(f.pos, f.slots)
}

// armBell has the peer ring for the next message.
func (f *inflow) armBell() { f.memory.Memory().Words32(wire.FlowArmed, 1)[0].Swap(1) } // and no Store: see package shm

// ready says whether there may be something to drain. It is called beside drain.
func (f *inflow) ready() bool {
	m := f.memory.Memory()
	return f.gone.Load() || words(m, wire.FlowTail).Load() != words(m, wire.FlowHead).Load()
}

// drainMessages moves what has arrived to its place, as far as there is room. It returns true if
// the peer has ended, and nothing will follow.
func (f *inflow) drainMessages() (over bool) {
	gone := f.gone.Load()
	if f.port.unit == fabric.UnitRMA {
		over = f.drainRMA()
	} else {
		over = f.drainVELO()
	}
	return gone && over
}

// moved counts messages that were moved.
func (f *inflow) moved(n uint64) {
	f.port.moved.Add(n)
	f.port.addCount(wire.CounterReceived, n)
}

// freeSlot frees the slot.
func (f *inflow) freeSlot() {
	f.pos++
	shm.Publish()
	words(f.memory.Memory(), wire.FlowHead).Store(f.pos)
}

// Positions in the status word of a message in a flow (SPEC.md 2), and in that of a mailbox
// (velo.Status).
const (
	flowLen, flowTag, flowType, flowMC          = 0, 8, 16, 20
	boxVPID, boxType, boxMC, boxTag, boxLen, id = 16, 26, 31, 32, 40, 47
	lenMask, tagMask, typeMask                  = 1<<7 - 1, 1<<8 - 1, 1<<4 - 1
)

// drainVELO returns whether all has been moved.
func (f *inflow) drainVELO() bool {
	moved := uint64(0)
	for {
		w, ok := f.takeStatus()
		if !ok || !f.deliverMessage(w) {
			if moved > 0 {
				f.moved(moved)
				f.target.Raise()
			}
			return !ok
		}
		moved++
		f.freeSlot()
	}
}

// deliverMessage moves a message to the mailbox; false: there is no room, nobody has opened it
// yet, or it is a successor's.
func (f *inflow) deliverMessage(w uint64) bool {
	if f.target == nil {
		t, err := f.port.link.nic.AcceptFlow(f.from.Node, f.from.VPID, f.port.vpid, ignored{})
		if err != nil {
			return false
		}
		if !f.port.isOurs() {
			link.End(t)
			return false
		}
		f.target = t
	}
	n := int(w >> flowLen & lenMask)
	if n < 1 || n > link.VELOPayload {
		return true // it was given up, or is none
	}
	slot, pos, err := f.target.Reserve()
	if err != nil {
		return !errors.Is(err, fabric.ErrAgain) // closed: the message is lost
	}
	f.slot().Part(8, n).CopyTo(slot[:])
	f.target.Commit(pos, uint64(f.from.Node)|uint64(f.from.VPID)<<boxVPID|w>>flowType&typeMask<<boxType|w>>flowMC&1<<boxMC|
		w>>flowTag&tagMask<<boxTag|uint64(n)<<boxLen|uint64(f.target.ID())<<id)
	return true
}

// ignored is the credit of a flow whose slots are enough: its source sees them freed.
type ignored struct{}

func (ignored) Return(uint64) {}
func (ignored) Resume()       {}
func (ignored) Down()         {}

// drainRMA returns whether all has been told.
func (f *inflow) drainRMA() bool {
	told := uint64(0)
	defer func() { f.moved(told) }()
	for {
		w, ok := f.takeStatus()
		if !ok {
			return true
		}
		s := f.slot()
		n, ok := f.notification(w, words(s, 8).Load(), words(s, 16).Load())
		if ok && !f.port.link.nic.Tell(f.port.vpid, n, f.port.isOurs) {
			return false
		}
		told++
		f.freeSlot()
	}
}

// Bits of a notification of a flow: SPEC.md 5.
const (
	noteLen               = 1<<23 - 1
	noteWriter, noteError = 48, 61
	noteCommand           = 51
	noteModeNTR           = 16 << 55

	writerResponder, writerCompleter = 2, 4

	commandPut, commandPutQW, commandGet, commandGetQW, commandImmediate = 2, 3, 0, 1, 6
)

// notification translates what a peer has written. It returns false if there is
// none such in Go.
func (f *inflow) notification(status, address, w uint64) (n rma.Notification, ok bool) {
	n = rma.Notification{Node: f.from.Node, VPID: f.from.VPID, Local: atu.NLA(address)}
	if n.Len = int(status >> 8 & (1<<24 - 1)); n.Len == 0 {
		n.Len = int(w&noteLen) + 1
	}
	switch w >> noteWriter & 7 {
	case writerResponder:
		n.Writer = rma.Responder
	case writerCompleter:
		n.Writer = rma.Completer
	default:
		return n, false
	}
	switch w >> noteCommand & 15 {
	case commandPut, commandPutQW:
		n.Command = rma.CommandPut
	case commandImmediate:
		n.Command = rma.CommandPutImmediate
	case commandGet, commandGetQW:
		n.Command = rma.CommandGet
	default:
		return n, false
	}
	return n, w>>noteError == 0 && (n.Writer == rma.Responder) == (n.Command == rma.CommandGet)
}

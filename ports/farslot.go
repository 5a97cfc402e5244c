package ports

import (
	"errors"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
)

// farSlots is how many messages of a VELO pair may be on their way to the far port's flow: as many
// as the flow has slots.
const farSlots = 128

// slotCount counts the slots of a stream that are in our port's flow.
type slotCount struct {
	stream uint32
	wrote  uint64
	told   uint64 // of wrote, what the sender knows
}

// countSlot counts a slot of a stream. It returns whether the sender should know.
func (c *slotCount) countSlot(stream uint32) (due bool) {
	if c.stream != stream { // of the port that had the VPID before
		*c = slotCount{stream: stream}
	}
	c.wrote++
	if c.wrote-c.told < farSlots/2 {
		return false
	}
	c.told = c.wrote
	return true
}

// message says how many there are.
func (c *slotCount) message() wire.Message {
	return wire.Message{Op: wire.OpFarTaken, Unit: fabric.UnitVELO, B: c.told, C: uint64(c.stream)}
}

// hearSlot processes a slot of a node of another host: it writes it to our port's flow, or leaves
// it to serve. It borrows b.
func (s *Server) hearSlot(from fabric.NodeID, session uint64, slot wire.Slot, b []byte) {
	f, m, say := s.takeSlot(from, session, slot, b)
	if !say {
		return
	}
	// Without the lock: the other node may be in this process, and answer at once.
	if err := f.trySend(m); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.postLocked(m, false)
	}
}

// takeSlot is hearSlot, and returns what to say.
func (s *Server) takeSlot(from fabric.NodeID, session uint64, slot wire.Slot, b []byte) (f *farNode, m wire.Message, say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.farLocked(from, session); f == nil {
		return nil, m, false
	}
	p := f.pairs[pair{fabric.UnitVELO, slot.From, slot.To}]
	if p == nil || !p.state.hears() {
		return f, wire.Message{Op: wire.OpFarTaken, Status: wire.StatusNoPort, Unit: fabric.UnitVELO, C: uint64(slot.Stream)}, true
	}
	_, size := wire.Slots(fabric.UnitVELO)
	if n := slot.Word & (1<<7 - 1); len(b) > size-8 || int(n) > len(b) {
		p.handleEvent(pairParted)
		return nil, m, false
	}
	if p.queued.Load() == 0 && p.out.tryPut(uint64(slot.Word), b) {
		if p.slots.countSlot(slot.Stream) {
			return f, p.slots.message(), true
		}
		return nil, m, false
	}
	late := farMessage{Message: wire.Message{Op: wire.OpFarSlot, Unit: fabric.UnitVELO, B: uint64(slot.Word), C: uint64(slot.Stream)}}
	late.data = append(late.data, b...)
	if !p.enqueue(late) { // it has more on their way than it may
		p.handleEvent(pairParted)
	}
	return nil, m, false
}

// serveSlot writes a slot to our port's flow, when there is room. It returns false if the far node
// is down.
func (f *farPair) serveSlot(out *farOut, m farMessage) bool {
	if f.deliverSlot(out, m) != wire.StatusOK { // the port has ended
		f.refuseRequest(m)
		f.queued.Add(-1)
		return true
	}
	due := f.slots.countSlot(uint32(m.C))
	told := f.slots.message()
	f.queued.Add(-1)
	return !due || f.node.send(told, nil) == nil
}

// takenLocked processes OpFarTaken: of the stream C, B slots are in the far port's flow, or that
// port has ended. What it has sent before may still come, and its end after that. Until then what
// our port sends goes the same way, and holds up nothing.
//
// +checklocks:s.mu
func (s *Server) takenLocked(f *farNode, m wire.Message) {
	p := f.streams[uint32(m.C)]
	if p == nil {
		return
	}
	switch {
	case m.Status != wire.StatusOK:
		p.handleEvent(pairLost)
		p.takeSlots(p.sent.Load())
	case m.B > p.sent.Load():
		p.handleEvent(pairParted)
	default:
		p.takeSlots(m.B)
	}
}

// takeSlots notes that the far node holds up none of the first n slots any more. The server's lock
// is held.
//
// +checklocksignore: as handleEvent
func (f *farPair) takeSlots(n uint64) {
	before := f.taken.Load()
	if n <= before { // one that had to wait for credit comes after the next
		return
	}
	f.taken.Store(n)
	if f.sent.Load()-before >= farSlots { // it waits for that, or is about to
		f.node.server.carrier.wakeDriver()
	}
}

// trySend sends a message, if that needs no wait.
func (f *farNode) trySend(m wire.Message) error {
	b, _ := m.AppendBinary(nil) // it does not fail
	err := f.tryBytes(b)
	f.server.cfg.Far.Flush(f.id)
	return err
}

func (f *farNode) tryBytes(b []byte) error {
	err := f.server.cfg.Far.TrySend(f.id, f.session, b)
	if err != nil && !errors.Is(err, fabric.ErrAgain) {
		f.server.mu.Lock()
		f.server.farDownLocked(f)
		f.server.mu.Unlock()
	}
	return err
}

package pool

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/internal/shm"
	"exnet/memory/wire"
)

// rmaVPID is the RMA port by which nodes of different hosts move data of leases.
const rmaVPID fabric.VPID = 13

// notifications is the queue of that port: half of it for operations of processes here.
const notifications = 1 << 16

// mover moves data of leases between hosts, by RMA, many operations at a time. They end in any
// order.
type mover struct {
	nic *nic.NIC
	ops *rma.Initiator // nil: there is no NIC
}

// init opens the port, unless there is no NIC.
func (v *mover) init(n *nic.NIC) error {
	if n == nil {
		return nil
	}
	port, err := n.OpenRMA(rmaVPID, rma.Config{Notifications: notifications})
	if err != nil {
		return fmt.Errorf("memory: open RMA: %w", err)
	}
	v.nic, v.ops = n, rma.NewInitiator(port)
	return nil
}

// close closes the port, and ends what is under way.
func (v *mover) close() {
	if v.ops != nil {
		_ = v.ops.Close() // an error says that it is closed already
	}
}

// exported is the memory of a loan that a node of another host may use.
type exported struct {
	memory  *shm.Loan
	regions []*atu.Region
	parts   []atu.NLA
}

// exportMemory registers memory and lends it to a node.
func (v *mover) exportMemory(fd int, size int64, to fabric.NodeID) (e exported, err error) {
	if v.ops == nil {
		return e, fabric.ErrNoRoute
	}
	if e.memory, err = shm.MapLoan(fd, size); err != nil {
		return e, err
	}
	for rest := e.memory.Own(); len(rest) > 0; {
		part := rest[:min(len(rest), wire.PartSize)]
		rest = rest[len(part):]
		r, err := v.nic.ATU().Register(rmaVPID, part, atu.Read|atu.Write)
		if err != nil {
			e.close()
			return exported{}, err
		}
		e.regions = append(e.regions, r)
		nla, err := r.Lend(to)
		if err != nil {
			e.close()
			return exported{}, err
		}
		e.parts = append(e.parts, nla)
	}
	return e, nil
}

// close refuses accesses from now on, and waits for those that run.
func (e exported) close() {
	for _, r := range e.regions {
		_ = r.Close() // nobody else closes it
	}
	if e.memory != nil {
		e.memory.Close()
	}
}

// window is memory through which a process reads and writes a lease of another host.
type window struct {
	fd     int // lent by memory
	memory *shm.Foreign
	region *atu.Region

	mu sync.Mutex
	// busy: slots, a bit each.
	busy uint64 // +checklocks:mu
}

// openWindow makes a window.
func (v *mover) openWindow() (*window, error) {
	m, err := shm.CreateShared("exnet-window", wire.WindowSize)
	if err != nil {
		return nil, err
	}
	// What is there only the process reads, and who gets it from the lender. It decides nothing.
	r, err := v.nic.ATU().Register(rmaVPID, m.Exposed(), atu.Read|atu.Write)
	if err != nil {
		m.Retire()
		return nil, err
	}
	return &window{fd: m.Fd(), memory: m, region: r}, nil
}

// close waits for the operations that run.
func (w *window) close() {
	_ = w.region.Close() // nobody else closes it
	w.memory.Retire()
}

// slotsOf returns the slots of an operation, a bit each; 0: there are none such. One that has no
// bytes, or too many, has its first slot.
func slotsOf(m wire.Message) uint64 {
	n := uint64(1)
	if m.Op != wire.OpZero && m.B > 0 && m.B <= wire.Span*wire.SlotSize {
		n = (m.B-1)/wire.SlotSize + 1
	}
	if uint64(m.Number)+n > wire.Slots {
		return 0
	}
	return (1<<n - 1) << m.Number
}

func (w *window) takeSlots(slots uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slots == 0 || w.busy&slots != 0 {
		return false
	}
	w.busy |= slots
	return true
}

func (w *window) freeSlots(slots uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy &^= slots
}

// errSlot says that a process breaks the rules of its window.
var errSlot = fmt.Errorf("%w: no slot, or one that is in use", wire.ErrMessage)

// startOperation starts an operation of a process, whose answer follows. An error ends the
// process's lease.
func (v *mover) startOperation(b *borrower, m wire.Message) error {
	if m.Op != wire.OpGet && m.Op != wire.OpPut && m.Op != wire.OpZero {
		return fmt.Errorf("%w: operation %d", wire.ErrMessage, m.Op)
	}
	slots := slotsOf(m)
	if !b.window.takeSlots(slots) {
		return errSlot
	}
	answer := wire.Message{Op: m.Op, Number: m.Number, Status: wire.StatusInvalid}
	b.server.mu.Lock()
	ended := b.Ended()
	b.server.mu.Unlock()
	if ended { // its lender may be about to take the memory out of reach
		b.window.freeSlots(slots)
		answer.Status = wire.StatusRevoked
		b.postMessage(answer)
		return nil
	}
	size := uint64(b.size)
	if m.B == 0 || m.B > size || m.A > size-m.B {
		b.window.freeSlots(slots)
		b.postMessage(answer)
		return nil
	}
	if m.Op == wire.OpZero {
		b.server.hub.Go(func() {
			a := b.from.(*peer).zeroLent(wire.Message{D: b.id, A: m.A, B: m.B})
			answer.Status = a.Status
			b.window.freeSlots(slots)
			b.postMessage(answer)
		})
		return nil
	}
	part, at := m.A/wire.PartSize, m.A%wire.PartSize
	if m.B > wire.Span*wire.SlotSize || at+m.B > wire.PartSize {
		b.window.freeSlots(slots)
		b.postMessage(answer)
		return nil
	}
	v.beginTransfer(&transfer{
		b: b, op: m.Op, slots: slots, number: m.Number, size: int(m.B), pause: againFirst,
		local:  b.window.region.NLA() + atu.NLA(m.Number)*wire.SlotSize,
		remote: b.parts[part] + atu.NLA(at),
	})
	return nil
}

// How long an operation that a link has cut pauses before it is begun once more.
const (
	againFirst = time.Millisecond
	againLast  = 100 * time.Millisecond
)

// transfer is a GET or a PUT of a process, from its request to its answer. While there is no
// link it waits. One that the link has cut is begun once more: the lender may have carried it
// out, but its slots are the same still, so that doing it again changes nothing. The older link
// has ended at the lender before there is a newer one (mesh), so that nothing of it comes late.
type transfer struct {
	b             *borrower
	op            wire.Op
	slots         uint64
	number        uint32
	local, remote atu.NLA
	size          int
	pause         time.Duration
}

// beginTransfer begins a transfer.
func (v *mover) beginTransfer(t *transfer) {
	if p, ok := t.b.from.(*peer); ok {
		if _, up := p.reachableSince(); !up {
			v.retryTransfer(t)
			return
		}
	}
	done := func(why fabric.Status) { v.endTransfer(t, why.Err()) }
	var err error
	if t.op == wire.OpGet {
		err = v.ops.Get(rma.GetReq{Node: t.b.node, VPID: rmaVPID, Local: t.local, Remote: t.remote, Len: t.size}, done)
	} else {
		err = v.ops.Put(rma.PutReq{Node: t.b.node, VPID: rmaVPID, Local: t.local, Remote: t.remote, Len: t.size}, done)
	}
	if err != nil {
		v.endTransfer(t, err)
	}
}

// endTransfer works off the end of a transfer. It does not wait.
func (v *mover) endTransfer(t *transfer, err error) {
	switch {
	case err == nil:
		t.answer(wire.StatusOK)
	case errors.Is(err, fabric.ErrPeerDown), errors.Is(err, fabric.ErrNoRoute):
		v.retryTransfer(t)
	case errors.Is(err, fabric.ErrAgain):
		t.answer(wire.StatusBusy)
	case errors.Is(err, fabric.ErrProtection):
		t.answer(wire.StatusRevoked)
	default:
		t.answer(wire.StatusLost)
	}
}

// retryTransfer begins a transfer once more after a pause, unless the lease has ended.
func (v *mover) retryTransfer(t *transfer) {
	pause := t.pause
	t.pause = min(2*pause, againLast)
	time.AfterFunc(pause, func() {
		s := t.b.server
		s.mu.Lock()
		over, closed := t.b.Ended(), s.hub.Ended()
		s.mu.Unlock()
		if over || closed {
			t.answer(wire.StatusLost)
			return
		}
		v.beginTransfer(t)
	})
}

// answer ends a transfer.
func (t *transfer) answer(status wire.Status) {
	t.b.window.freeSlots(t.slots)
	t.b.postMessage(wire.Message{Op: t.op, Number: t.number, Status: status})
}

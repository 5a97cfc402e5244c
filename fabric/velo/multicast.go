package velo

import (
	"errors"

	"exnet/fabric"
	"exnet/fabric/link"
)

// branch is one member's part of a multicast that is being sent.
type branch struct {
	f    *outflow
	slot *[MaxPayload]byte // nil while only the credit is taken
	pos  uint64
}

// tree is the scratch memory of one multicast.
type tree struct{ branches []branch }

// SendMulticast sends payload to every member of d.Group. If a member has no credit or
// no free slot, it sends to none and returns ErrAgain; OnCredit will be called for that
// member. Members that have not opened the VPID are left out and counted.
func (e *Endpoint) SendMulticast(d Descriptor, payload []byte) error {
	d.Multicast = true
	if err := d.checkSend(len(payload)); err != nil {
		return err
	}
	return e.sendToAll(&d, e.unit.routes.Members(d.Group), payload)
}

// SendMulticastTo is SendMulticast to the given nodes in place of the present members
// of d.Group, for a message that is of use only to nodes that got the previous ones.
// Other members are counted as MulticastSkipped. It borrows to until return.
func (e *Endpoint) SendMulticastTo(d Descriptor, to []fabric.NodeID, payload []byte) error {
	d.Multicast = true
	if err := d.checkSend(len(payload)); err != nil {
		return err
	}
	err := e.sendToAll(&d, to, payload)
	if skipped := len(e.unit.routes.Members(d.Group)) - len(to); err == nil && skipped > 0 {
		e.count.multicastSkipped.Add(uint64(skipped))
	}
	return err
}

// SendMulticastSkip sends payload to those members of d.Group that have credit
// and a free slot, and returns how many it left out. These are counted as
// MulticastSkipped, and cause no call of OnCredit.
func (e *Endpoint) SendMulticastSkip(d Descriptor, payload []byte) (skipped int, err error) {
	d.Multicast = true
	if err := d.checkSend(len(payload)); err != nil {
		return 0, err
	}
	if e.closed.Load() {
		return 0, errClosed
	}
	t := e.unit.tree()
	defer e.unit.fellTree(t)
	for _, n := range e.unit.routes.Members(d.Group) {
		f, err := e.openMember(n, d.VPID)
		if err != nil {
			e.count.multicastAbsent.Add(1)
			continue
		}
		if f.takeCredit() {
			slot, pos, err := f.target.Reserve()
			if err == nil {
				t.branches = append(t.branches, branch{f, slot, pos})
				continue
			}
			f.returnCredit()
		}
		skipped++
	}
	e.count.multicastSkipped.Add(uint64(skipped))
	e.fillSlots(t, &d, payload)
	return skipped, nil
}

// sendToAll is SendMulticastTo with a checked d. It takes all credits, then all slots,
// then fills the slots. If a step fails, it undoes the steps before.
func (e *Endpoint) sendToAll(d *Descriptor, to []fabric.NodeID, payload []byte) error {
	if e.closed.Load() {
		return errClosed
	}
	t := e.unit.tree()
	defer e.unit.fellTree(t)
	for _, n := range to {
		f, err := e.openMember(n, d.VPID)
		if err == nil {
			err = f.spendCredit()
		}
		switch {
		case err == nil:
			t.branches = append(t.branches, branch{f: f})
		case errors.Is(err, fabric.ErrAgain):
			e.undoTree(t, d.Quiet)
			e.count.refusal(err)
			return err
		default:
			e.count.multicastAbsent.Add(1)
		}
	}
	for i := range t.branches {
		b := &t.branches[i]
		var err error
		b.slot, b.pos, err = b.f.reserveSlot()
		if errors.Is(err, fabric.ErrAgain) {
			e.undoTree(t, d.Quiet)
			e.count.refusal(err)
			return err
		}
		if err != nil {
			e.count.multicastAbsent.Add(1)
		}
	}
	e.fillSlots(t, d, payload)
	return nil
}

// openMember opens the flow to a member of a group. It does not retry at once for a member that
// was absent.
func (e *Endpoint) openMember(n fabric.NodeID, vpid fabric.VPID) (*outflow, error) {
	if f := e.flowTo(n, vpid); f != nil && !f.dead.Load() {
		return f, nil
	}
	if p, ok := e.unit.routes.Port(n).(link.Sparse); ok && p.Absent(e.vpid, vpid) {
		return nil, errMailboxClosed
	}
	return e.openFlow(n, vpid)
}

// fillSlots fills all slots before it raises the interrupts: a handler may be slow, and
// the other mailboxes cannot advance beyond an empty slot.
func (e *Endpoint) fillSlots(t *tree, d *Descriptor, payload []byte) {
	e.unit.routes.Multicast(d.Group, len(payload))
	if p := e.unit.profile.Load(); p != nil {
		p.Multicast(e.unit.self, e.vpid, d.VPID, d.Group, e.unit.routes.Members(d.Group), len(payload))
	}
	for _, b := range t.branches {
		if b.slot == nil {
			b.f.returnCredit()
			continue
		}
		n := copy(b.slot[:], payload)
		b.f.target.Commit(b.pos, b.f.word|d.statusBits(n)|statusMCBit)
		b.f.tally.Skip()
	}
	if !d.Quiet {
		t.raiseInterrupts()
	}
	e.count.multicasts.Add(1)
}

// undoTree returns credits and abandons slots. The target returns the credit of an
// abandoned slot.
func (e *Endpoint) undoTree(t *tree, quiet bool) {
	for _, b := range t.branches {
		if b.slot == nil {
			b.f.returnCredit()
			continue
		}
		b.f.target.Commit(b.pos, b.f.word)
		b.f.tally.Skip()
	}
	if !quiet {
		t.raiseInterrupts()
	}
}

// raiseInterrupts raises the interrupts of the members that got a slot.
func (t *tree) raiseInterrupts() {
	for _, b := range t.branches {
		if b.slot != nil {
			b.f.target.Raise()
		}
	}
}

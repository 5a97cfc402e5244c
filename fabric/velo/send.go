package velo

import (
	"errors"
	"math"

	"exnet/fabric"
	"exnet/fabric/link"
)

// Send sends payload, 1 to MaxPayload bytes, and copies it. Messages of one goroutine
// to one mailbox arrive in order. With d.Multicast it is SendMulticast. The error
// wraps ErrAgain if the target has no credit for this endpoint or its mailbox is full
// (OnCredit will be called), ErrPeerDown if the mailbox is not open, ErrNoRoute if
// the node is not there, ErrInvalid or ErrClosed.
func (e *Endpoint) Send(d Descriptor, payload []byte) error {
	if uint(len(payload)-1) >= MaxPayload || d.Type > MaxType || !d.VPID.Valid() || d.Multicast || !d.Class.Valid() {
		if err := d.checkSend(len(payload)); err != nil {
			return err
		}
		return e.sendToAll(&d, e.unit.routes.Members(d.Group), payload)
	}
	f := e.flowTo(d.Dst, d.VPID)
	if f == nil || !f.takeCredit() {
		return e.sendSlow(&d, payload)
	}
	slot, pos, err := f.target.Reserve()
	if err != nil {
		f.returnCredit()
		return e.sendSlow(&d, payload)
	}
	n := copy(slot[:], payload)
	f.sendSlot(d.Class, pos, f.word|d.statusBits(n), n)
	if !d.Quiet {
		f.target.Raise()
	}
	return nil
}

// Interrupt raises the interrupt of a mailbox for the messages that were sent to
// it with Descriptor.Quiet. A sender that holds a lock while it sends calls Interrupt
// after releasing it, because the target's handler may run in this goroutine (mem
// link).
func (e *Endpoint) Interrupt(dst fabric.NodeID, vpid fabric.VPID) {
	if f := e.flowTo(dst, vpid); f != nil {
		f.target.Raise()
	}
}

// InterruptGroup is Interrupt for all members of a group.
func (e *Endpoint) InterruptGroup(g fabric.GroupID, vpid fabric.VPID) {
	for _, n := range e.unit.routes.Members(g) {
		e.Interrupt(n, vpid)
	}
}

// statusBits returns the fields of the status word that come from the descriptor.
func (d *Descriptor) statusBits(n int) uint64 {
	return uint64(d.Type)<<statusTypeShift | uint64(d.Tag)<<statusTagShift | uint64(n)<<statusLenShift
}

// sendSlot sends a slot with n bytes, and counts it.
func (f *outflow) sendSlot(c fabric.Class, pos, status uint64, n int) {
	if c != 0 {
		f.commitClass(c, pos, status, n)
		return
	}
	f.target.Commit(pos, status)
	f.tally.Add(n)
}

// commitClass is commit for a message of a class. A link without crossbars ignores the class.
func (f *outflow) commitClass(c fabric.Class, pos, status uint64, n int) {
	if t, ok := f.target.(link.Classed); ok {
		t.CommitClass(pos, status, c)
	} else {
		f.target.Commit(pos, status)
	}
	f.tally.AddClass(c, n)
}

// sendSlow is Send for a flow that must be opened, or that is likely to refuse.
func (e *Endpoint) sendSlow(d *Descriptor, payload []byte) error {
	var err error
	for range 3 { // the flow can turn out to be dead, and so can its replacement
		var f *outflow
		if f, err = e.openFlow(d.Dst, d.VPID); err != nil {
			break
		}
		if err = f.spendCredit(); errors.Is(err, fabric.ErrAgain) {
			break
		} else if err != nil {
			continue
		}
		slot, pos, rerr := f.reserveSlot()
		if rerr == nil {
			n := copy(slot[:], payload)
			f.sendSlot(d.Class, pos, f.word|d.statusBits(n), n)
			if !d.Quiet {
				f.target.Raise()
			}
			return nil
		}
		f.returnCredit()
		if err = rerr; errors.Is(err, fabric.ErrAgain) {
			break
		}
	}
	e.count.refusal(err)
	return err
}

// spendCredit takes a credit. It returns errNoCredit if there is none (OnCredit will be
// called), or errMailboxClosed if the flow is dead.
func (f *outflow) spendCredit() error {
	took := f.takeCredit()
	switch {
	case took:
		return nil
	case !f.awaitCredit(f.episodeCredits(), func() bool { took = f.takeCredit(); return took }):
		return errNoCredit
	case took:
		return nil
	}
	return errMailboxClosed
}

// reserveSlot reserves a slot for a credit that the caller has. It returns errFull if the
// mailbox is full (OnCredit will be called), or errMailboxClosed if the flow is dead;
// the caller keeps its credit in both cases.
func (f *outflow) reserveSlot() (slot *[MaxPayload]byte, pos uint64, err error) {
	again := func() bool {
		slot, pos, err = f.target.Reserve()
		return !errors.Is(err, fabric.ErrAgain)
	}
	if !again() && !f.awaitCredit(f.episodeCredits()|wantSlot, again) {
		return nil, 0, errFull
	}
	if err != nil {
		f.markDead()
		return nil, 0, errMailboxClosed
	}
	return slot, pos, nil
}

// Credits returns how many messages may be sent to a mailbox now; 0 if the mailbox is
// not there. Only this endpoint's own sends lower the number.
func (e *Endpoint) Credits(dst fabric.NodeID, vpid fabric.VPID) int {
	f, err := e.openFlow(dst, vpid)
	if err != nil {
		return 0
	}
	return f.freeCredits()
}

// WantCredits reports whether n messages may be sent to a mailbox now. If not,
// OnCredit will be called when n messages, and at least half of all credits, may be
// sent. An n beyond all credits means all. It returns ErrPeerDown or ErrNoRoute,
// wrapped, if the mailbox is not there.
func (e *Endpoint) WantCredits(dst fabric.NodeID, vpid fabric.VPID, n int) (bool, error) {
	for range 3 {
		f, err := e.openFlow(dst, vpid)
		if err != nil {
			return false, err
		}
		need := min(uint64(max(n, 0)), f.limit)
		enough := func() bool { return uint64(f.freeCredits()) >= need }
		if enough() {
			return true, nil
		}
		if !f.awaitCredit(max(need, f.episodeCredits()), enough) {
			return false, nil
		}
		if enough() {
			return true, nil
		}
	}
	return false, errMailboxClosed
}

// GroupCredits returns how many messages may be sent to a group now: the least number
// over the members that have opened the VPID, or math.MaxInt if there are none.
func (e *Endpoint) GroupCredits(g fabric.GroupID, vpid fabric.VPID) int {
	least := math.MaxInt
	for _, n := range e.unit.routes.Members(g) {
		if f, err := e.openMember(n, vpid); err == nil {
			least = min(least, f.freeCredits())
		}
	}
	return least
}

// WantGroupCredits is WantCredits for every member of a group that has opened
// the VPID. If it returns false, OnCredit will be called for one of the members that
// have too few credits; call it again then.
func (e *Endpoint) WantGroupCredits(g fabric.GroupID, vpid fabric.VPID, n int) bool {
	for _, m := range e.unit.routes.Members(g) {
		if _, err := e.openMember(m, vpid); err != nil {
			continue
		}
		if ok, err := e.WantCredits(m, vpid, n); !ok && err == nil {
			return false
		}
	}
	return true
}

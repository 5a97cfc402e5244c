package far

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
)

// moverVPID is the RMA port of Movers.
const moverVPID fabric.VPID = 14

// notifications is the queue of a Mover's RMA port: half of it for what this node has started.
const notifications = 1 << 16

// Mover moves bytes between memory of this host and of others by RMA, many operations at a time.
//
// Concurrency: all methods may be called from many goroutines.
type Mover struct {
	nic *nic.NIC
	ops *rma.Initiator
}

// NewMover opens the RMA port moverVPID.
func NewMover(n *nic.NIC) (*Mover, error) {
	port, err := n.OpenRMA(moverVPID, rma.Config{Notifications: notifications})
	if err != nil {
		return nil, fmt.Errorf("far: open RMA: %w", err)
	}
	return &Mover{n, rma.NewInitiator(port)}, nil
}

// Lend lends memory to a node, which may then read or write it at the address. It borrows mem
// until end has returned, which waits for what runs.
func (m *Mover) Lend(mem []byte, a atu.Access, to fabric.NodeID) (nla atu.NLA, end func(), err error) {
	r, err := m.nic.ATU().Register(moverVPID, mem, a)
	if err != nil {
		return 0, nil, err
	}
	end = func() { _ = r.Close() } // nobody else closes it
	if nla, err = r.Lend(to); err != nil {
		end()
		return 0, nil, err
	}
	return nla, end, nil
}

// Put writes mem to what a node has lent, and waits for the end. It borrows mem until then. The
// error wraps fabric.ErrAgain if too much is under way, fabric.ErrProtection if the memory is
// not lent, or not any more, and fabric.ErrPeerDown if the node is gone, or the Mover is closed.
func (m *Mover) Put(mem []byte, to fabric.NodeID, at atu.NLA) error {
	return m.startAndWait(mem, atu.Read, func(local atu.NLA, done func(fabric.Status)) error {
		return m.ops.Put(rma.PutReq{Local: local, Remote: at, Len: len(mem), Node: to, VPID: moverVPID}, done)
	})
}

// Get is Put the other way: it reads into mem.
func (m *Mover) Get(mem []byte, from fabric.NodeID, at atu.NLA) error {
	return m.startAndWait(mem, atu.Write, func(local atu.NLA, done func(fabric.Status)) error {
		return m.ops.Get(rma.GetReq{Local: local, Remote: at, Len: len(mem), Node: from, VPID: moverVPID}, done)
	})
}

func (m *Mover) startAndWait(mem []byte, a atu.Access, start func(atu.NLA, func(fabric.Status)) error) error {
	r, err := m.nic.ATU().Register(moverVPID, mem, a)
	if err != nil {
		return err
	}
	defer r.Close()
	ended := make(chan fabric.Status, 1)
	if err := start(r.NLA(), func(s fabric.Status) { ended <- s }); err != nil {
		return err
	}
	return (<-ended).Err()
}

// Close ends what is under way.
func (m *Mover) Close() error { return m.ops.Close() }

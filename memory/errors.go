package memory

import (
	"errors"
	"fmt"

	"exnet/fabric"
	"exnet/internal/display"
	"exnet/memory/wire"
)

// Errors of leases; test with errors.Is.
var (
	// ErrRevoked: the lender has taken the memory back, or the lease's time is over. The content
	// is gone. Borrow again, or elsewhere.
	ErrRevoked = fmt.Errorf("memory: the lender has taken the memory back: %w", fabric.ErrProtection)

	// ErrLost: the lender has ended or cannot be reached, and the content is gone. Borrow
	// elsewhere.
	ErrLost = fmt.Errorf("memory: the lender is gone, and the content with it: %w", fabric.ErrPeerDown)

	// ErrRange: the offset or the size is not within the segment. The caller has a bug.
	ErrRange = fmt.Errorf("memory: not within the segment: %w", fabric.ErrInvalid)

	// ErrRefused: no node lends that much. The message says what there is; ask for that, or less.
	ErrRefused = errors.New("memory: refused")
)

// refusal is the error of a request that was answered with m.
func refusal(cfg Config, m wire.Message) error {
	size := display.Size(float64(cfg.Size))
	left := display.Size(float64(m.B))
	why := ""
	switch m.Status {
	case wire.StatusVersion:
		why = fmt.Sprintf("node %d has version %d of the protocol, this program %v: use programs of one release", m.Node, m.A, wire.Versions)
	case wire.StatusFull:
		why = fmt.Sprintf("%s is more than there is: node %d has %s left", size, m.Node, left)
	case wire.StatusLimit:
		why = fmt.Sprintf("%s is more than node %d lends to this node or user: %s is left of the limit", size, m.Node, left)
	case wire.StatusNoNode:
		why = fmt.Sprintf("node %d is not there", m.Node)
	case wire.StatusNoLender:
		why = "no other node lends memory: start one with exn-tun up --lend SIZE"
		if cfg.Node != nil {
			why = fmt.Sprintf("node %d lends no memory: start it with --lend SIZE", *cfg.Node)
		}
	case wire.StatusHuge:
		why = fmt.Sprintf("node %d has no huge pages for %s: reserve some there (sysctl vm.nr_hugepages)", m.Node, size)
	case wire.StatusBusy:
		why = "this user has too many leases: end some"
	case wire.StatusMemory:
		why = fmt.Sprintf("the host of node %d has no memory for %s: %s is left", m.Node, size, left)
	default:
		why = fmt.Sprintf("a lease of %s: status %d", size, m.Status)
	}
	return fmt.Errorf("%w: %s", ErrRefused, why)
}

// ending is the error of a lease that has ended for the reason given.
func ending(why wire.Status) error {
	if why == wire.StatusLost || why == wire.StatusNoLease || why == wire.StatusNoNode {
		return ErrLost
	}
	return ErrRevoked
}

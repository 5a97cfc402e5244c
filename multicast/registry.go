package multicast

import (
	"net/netip"

	"exnet/fabric"
)

// Registry is the fabric's directory of IP groups, as one node sees it.
//
// Concurrency: all methods may be called from many goroutines.
type Registry interface {
	// Join makes this node a member of an IP group: from now on, frames to the
	// group reach it. It returns the fabric group that carries the IP group,
	// fabric.GroupBroadcast if no other is free. To join again does nothing. It
	// is called in the data path and must not wait for other nodes.
	Join(group netip.Addr) (fabric.GroupID, error)
	// Leave ends the membership. To leave a group that was not joined does
	// nothing. The last member's leave frees the fabric group.
	Leave(group netip.Addr) error
	// Lookup returns the fabric group for frames to an IP group, given as the 4
	// or 16 bytes that a packet has; false: the group has no members. It takes
	// no lock and does not allocate. It borrows group until return.
	Lookup(group []byte) (fabric.GroupID, bool)
}

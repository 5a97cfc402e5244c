package fabric

import "strconv"

// NodeID is the address of a NIC on the fabric (16 bits). Its upper 6 bits are
// the segment, its lower 10 bits the node inside the segment (thesis 5.4.5.2).
type NodeID uint16

// Sizes of the two routing tables (thesis 5.4.5.2).
const (
	Segments        = 64   // entries of the global routing table
	NodesPerSegment = 1024 // entries of a local routing table
)

// Segment is n's index in the global routing table.
func (n NodeID) Segment() int { return int(n / NodesPerSegment) }

// Local is n's index in its segment's local routing table.
func (n NodeID) Local() int { return int(n % NodesPerSegment) }

// VPID is a virtual process ID: it names a mailbox of a node and the memory that
// its messages may access (thesis 3.2.3). Descriptors have 10 bits for it; a unit
// serves the first VPIDs of them.
type VPID uint16

// VPIDs is how many virtual process IDs each unit of a NIC has.
const VPIDs = 256

// Valid reports whether v is below VPIDs.
func (v VPID) Valid() bool { return v < VPIDs }

// GroupID is a multicast group.
type GroupID uint8

const (
	// Groups is the size of the multicast routing table (thesis 5.4.5.2).
	Groups = 64
	// GroupBroadcast reaches every node of the fabric but the sender.
	GroupBroadcast GroupID = 63
)

// Valid reports whether g is below Groups.
func (g GroupID) Valid() bool { return g < Groups }

// Class is the traffic class of a packet. An override (topo.Override) may route a class
// differently. 0 means no class. For IP packets it is the DSCP (RFC 2474).
type Class uint8

// Classes is how many traffic classes there are, 0 included.
const Classes = 64

// Valid reports whether c is below Classes.
func (c Class) Valid() bool { return c < Classes }

// Unit is a functional unit of the NIC. The zero Unit is invalid.
type Unit uint8

// The functional units that raise interrupts.
const (
	UnitVELO Unit = iota + 1
	UnitRMA
)

// String returns the unit's name in lower case.
func (u Unit) String() string {
	switch u {
	case UnitVELO:
		return "velo"
	case UnitRMA:
		return "rma"
	}
	return "unit(" + strconv.Itoa(int(u)) + ")"
}

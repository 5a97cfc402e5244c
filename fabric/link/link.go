// Package link is the seam between NICs: the methods of a link by which a NIC reaches
// a peer, and the methods of a NIC by which a link serves a peer.
//
// # Architecture
//
//	 origin NIC                                   target NIC
//	velo ── Port.OpenFlow ─┐                ┌─▶ Handler.AcceptFlow ── velo
//	     ── Flow.Reserve ──┤                │
//	     ── Flow.Commit ───┤      link      ├── Credit.Return ◀────── velo
//	rma  ── Port.Get ──────┤                ├─▶ Handler.ServeGet ───── rma
//	     ◀─ Sink.Data/Done─┤                │
//	     ── Port.Put ──────┘                └─▶ Handler.ServePut ───── rma
//
// Nothing here assumes shared memory. A VELO message is written into a slot that
// the link lends (the requester page of thesis 3.2.2) and committed with its
// status word; the link may copy it anywhere. An RMA operation is posted with a
// Done that is called once, in any goroutine, possibly long after the call and
// possibly with an error; its data may come in pieces.
//
// A link that has to be polled (Active) is served by its own goroutine, or by a
// Driver: a thread that serves it (Served) along with everything else that the
// process waits for.
//
// # Concurrency
//
// Every method may be called from many goroutines. A link holds no lock while
// it calls a NIC, and a NIC none while it calls a link, with one exception:
// OpenFlow and AcceptFlow run under the lock of the endpoint that sends. They
// must not send, and must not call back into that endpoint.
//
// # Limits
//
// A VELO message that Commit accepted is delivered, or the peer is down: a link
// that can lose packets repeats them itself, as the EXTOLL link layer does.
package link

import (
	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/foreign"
)

// VELOPayload is how many bytes of payload a VELO message has at most.
const VELOPayload = 120

// Port is a NIC's side of the link to one peer.
type Port interface {
	// OpenFlow opens the mailbox to of the peer for messages of the mailbox from of
	// this node. Credit is told what the peer has consumed. The error wraps
	// ErrPeerDown if the peer's NIC or mailbox is closed.
	OpenFlow(from, to fabric.VPID, c Credit) (Flow, error)

	// Get asks the peer for data. The link calls s.Data for the data and then
	// s.Done, before or after Get returns.
	Get(g Get, s Sink)

	// Put sends data to the peer. The link borrows data until it calls d.Done.
	Put(p Put, data []byte, d Done)
}

// Handler serves the requests of a NIC's peers. The link vouches for src.
type Handler interface {
	AcceptFlow(src fabric.NodeID, from, to fabric.VPID, c Credit) (Flow, error)
	ServeGet(src fabric.NodeID, g Get, s Sink)
	// ServePut borrows data until it calls d.Done.
	ServePut(src fabric.NodeID, p Put, data foreign.Memory, d Done)
}

// Flow carries the messages of one mailbox to one mailbox of a peer. They arrive in
// the order of their Reserve calls.
type Flow interface {
	// ID is the number that the target gave to the flow; it goes into every status
	// word.
	ID() uint16

	// Limit is how many messages may be in flight or unread.
	Limit() int

	// Reserve lends a slot until Commit, which must follow soon: slots are read in
	// order. The error wraps ErrAgain if the mailbox is full, Credit.Resume will be
	// called. The error wraps ErrPeerDown if the mailbox is closed.
	Reserve() (payload *[VELOPayload]byte, pos uint64, err error)

	// Commit sends the slot that Reserve lent under pos. A status word with the
	// length 0 gives the slot up: the target skips it.
	Commit(pos uint64, status uint64)

	// Raise raises the target's interrupt for what was committed. It may run the
	// target's handler.
	Raise()
}

// Sparse is a Port that must ask the node whether a mailbox exists.
type Sparse interface {
	Port

	// Absent reports whether OpenFlow found no mailbox a moment ago: a message to a group does not
	// ask again at once.
	Absent(from, to fabric.VPID) bool
}

// Classed is a Flow on which packets of a class may take another route.
type Classed interface {
	Flow

	// CommitClass is Commit for a message of a class.
	CommitClass(pos, status uint64, c fabric.Class)
}

// Ending is a Flow of Handler.AcceptFlow whose number is given to another flow once it has ended.
type Ending interface {
	Flow

	// End says, once, that nobody reserves a slot any more, nor has one to commit.
	End()
}

// End ends a flow that AcceptFlow has returned. The link does not use it any more.
func End(f Flow) {
	if e, ok := f.(Ending); ok {
		e.End()
	}
}

// Remote is a Flow over a link on which credit does not come by itself, message
// by message: the source looks for it when it needs it.
type Remote interface {
	Flow

	// Consumed is how many messages the target has consumed since the flow was
	// opened, as far as can be seen here.
	Consumed() uint64

	// Watch asks for a call of Credit.Return when Consumed reaches total. It stands
	// for one call, and replaces what was asked for before. Who calls Watch looks at
	// Consumed afterwards: what was reached already is not reported.
	Watch(total uint64)
}

// Credit carries reports of a target to the source of a flow. Its methods may run the
// source's OnCredit handler.
type Credit interface {
	// Return says that the target has consumed total messages since the flow was
	// opened. Calls come in order.
	Return(total uint64)

	// Resume says that a mailbox that refused a message for lack of slots has slots
	// again.
	Resume()

	// Down says that the mailbox is closed and that no credit will come back.
	Down()
}

// Get is the request packet of an RMA GET.
type Get struct {
	From   fabric.VPID // mailbox of the origin
	To     fabric.VPID // mailbox and memory rights on the target
	Remote atu.NLA     // source of the data, on the target
	Len    int
	Notify bool // the responder writes a notification

	// Class is the class of the request and of the response. The origin's crossbar
	// chooses both routes by it; the target need not know it.
	Class fabric.Class
}

// Put is the request packet of an RMA PUT.
type Put struct {
	From      fabric.VPID
	To        fabric.VPID
	Remote    atu.NLA      // sink of the data, on the target
	Immediate bool         // the data was in the descriptor
	Notify    bool         // the target's completer writes a notification
	Class     fabric.Class // by which the origin's crossbar chooses the route
}

// Lender is a Handler for links that read the memory of a GET and write that of a PUT
// themselves, or whose peer does.
type Lender interface {
	// LendGet is ServeGet up to the point where the data is to be read. With
	// StatusOK the memory is lent until Lease.End.
	LendGet(src fabric.NodeID, g Get) (Lease, fabric.Status)

	// ServeRead says that a peer has read memory that was shown to it (atu.Book),
	// without LendGet. The responder writes its notification.
	ServeRead(src fabric.NodeID, g Get)

	// LendPut is ServePut of n bytes up to the point where the data is to be written.
	// With StatusOK the memory is lent until Landing.End; if the Landing is nil it is no
	// memory but a device, and ServePut is to be used. It runs no handler.
	LendPut(src fabric.NodeID, p Put, n int) (Landing, fabric.Status)
}

// NIC is the NIC of a link between processes or hosts; *nic.NIC is one.
type NIC interface {
	ID() fabric.NodeID
	ATU() *atu.ATU
	Connect(to fabric.NodeID, p Port)
	Disconnect(from fabric.NodeID)
	PeerDown(from fabric.NodeID)
	AddLink(l Active)
	RemoveLink(l Active)
	Handler
	Lender
}

// Lease is memory that a peer reads.
type Lease interface {
	Bytes() []byte

	// End returns the memory, once. If the peer has read it the responder's
	// notification is written, if there is to be one.
	End(read bool)
}

// Landing is memory that a link writes a peer's PUT to.
type Landing interface {
	Bytes() []byte

	// End returns the memory, once. If all of it was written the completer's
	// notification is written, if there is to be one.
	End(written bool)
}

// Done is called exactly once, when an operation has ended.
type Done interface {
	Done(s fabric.Status)
}

// Sink is the origin's completer as it waits for the response to a GET.
type Sink interface {
	// Data writes a piece of the response to its place. It borrows p, which the peer may change
	// meanwhile, until it returns. Pieces may come in any order, but not at the same time. After an
	// error the rest of the data may be left out.
	Data(off int, p foreign.Memory) error
	Done
}

// Placer is a Sink whose place a link may fill itself.
type Placer interface {
	Sink

	// Place lends the memory of the whole response until Done; nil: it is a device,
	// and only Data fills it.
	Place() []byte

	// Placed says that n more bytes of the response are in their place. It is called
	// before Done, and not at the same time as Data.
	Placed(n int)
}

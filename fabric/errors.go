package fabric

import "errors"

// Errors of the fabric. Units wrap them; test with errors.Is.
var (
	// ErrAgain: no credit, no slot or no room for a notification now. Nothing was
	// sent. Wait for OnCredit (VELO), read notifications (RMA) or for the running
	// transfer to end (ATU), then try again.
	ErrAgain = errors.New("fabric: resource temporarily unavailable")

	// ErrNoRoute: the routing table has no entry for the node. Give up, or try
	// again when the node has joined the fabric.
	ErrNoRoute = errors.New("fabric: no route to node")

	// ErrPeerDown: the node is known, but its NIC is closed or nobody has opened
	// the VPID there. Treat it like a host that is down.
	ErrPeerDown = errors.New("fabric: peer is down")

	// ErrClosed: the caller's own endpoint, region or NIC is closed. Stop.
	ErrClosed = errors.New("fabric: closed")

	// ErrProtection: the address translation unit refused the access. The address
	// is stale, or computed wrongly. Do not repeat the request.
	ErrProtection = errors.New("fabric: protection violation")

	// ErrInvalid: the arguments break the contract (size, range, combination). The
	// caller has a bug, or a decoder got a malformed word.
	ErrInvalid = errors.New("fabric: invalid argument")

	// ErrInUse: the node ID or VPID is taken. Pick another one.
	ErrInUse = errors.New("fabric: already in use")

	// ErrOverrun: a peer's notifications did not fit the queue. Sticky. What the
	// lost notifications would have released must be released by a timeout.
	ErrOverrun = errors.New("fabric: notification queue overrun")

	// ErrDevice: a device refused the data. The transfer is lost; only the device's
	// owner has the device's own error.
	ErrDevice = errors.New("fabric: device write failed")
)

package rma

import (
	"fmt"

	"exnet/fabric"
	"exnet/fabric/atu"
)

// Notify says which parts of the RMA unit write a notification, as bits.
type Notify uint8

// The bits of Notify. Table 3.1 gives the possible combinations:
//
//	          requester  completer  responder
//	PUT           0          0          0      no notifications
//	              1          0          0      one-sided PUT
//	              1          1          0      two-sided PUT
//	GET           0          0          0      no notifications
//	              0          1          0      one-sided GET
//	              0          1          1      two-sided GET
const (
	NotifyRequester Notify = 1 << iota
	NotifyCompleter
	NotifyResponder
)

func (n Notify) validGet() bool {
	return n == 0 || n == NotifyCompleter || n == NotifyCompleter|NotifyResponder
}

func (n Notify) validPut() bool {
	return n == 0 || n == NotifyRequester || n == NotifyRequester|NotifyCompleter
}

// GetReq asks for Len bytes at Remote, in the memory of the mailbox VPID of Node,
// to be written to Local, in the memory of the endpoint.
type GetReq struct {
	Local  atu.NLA
	Remote atu.NLA
	Len    int // 1 to MaxTransfer
	Node   fabric.NodeID
	VPID   fabric.VPID
	Notify Notify
	Class  fabric.Class
}

// PutReq asks for Len bytes at Local to be written to Remote.
type PutReq struct {
	Local  atu.NLA
	Remote atu.NLA
	Len    int // 1 to MaxTransfer
	Node   fabric.NodeID
	VPID   fabric.VPID
	Notify Notify
	Class  fabric.Class
}

// PutImmediateReq asks for the first Len bytes of Data to be written to Remote.
type PutImmediateReq struct {
	Data   [MaxImmediate]byte
	Len    int // 1 to MaxImmediate
	Remote atu.NLA
	Node   fabric.NodeID
	VPID   fabric.VPID
	Notify Notify
	Class  fabric.Class
}

// checkRequest checks the fields that all requests share.
func checkRequest(n, most int, vpid fabric.VPID, class fabric.Class, notifyOK bool) error {
	switch {
	case n < 1 || n > most:
		return fmt.Errorf("rma: transfer of %d bytes: use 1 to %d: %w", n, most, fabric.ErrInvalid)
	case !vpid.Valid():
		return fmt.Errorf("rma: VPID %d: %w", vpid, fabric.ErrInvalid)
	case !class.Valid():
		return fmt.Errorf("rma: class %d: %w", class, fabric.ErrInvalid)
	case !notifyOK:
		return fmt.Errorf("rma: this combination of notifications is not in table 3.1: %w", fabric.ErrInvalid)
	}
	return nil
}

package fabric

import (
	"fmt"
	"strconv"
)

// Status says how an RMA operation ended. It is what travels in response packets
// and notifications, where an error value cannot.
type Status uint8

// The values of Status. They are part of the notification format.
const (
	StatusOK          Status = iota
	StatusProtection         // the target's ATU refused the remote address
	StatusNoVPID             // nobody has opened the VPID on the target
	StatusDevice             // the device behind an address failed
	StatusPeerDown           // the target's NIC is closed or the link is gone
	StatusOverrun            // no room in the target's notification queue
	StatusBadResponse        // the response did not have the length asked for
	statusEnd
)

// Valid reports whether s is one of the values above.
func (s Status) Valid() bool { return s < statusEnd }

var statusNames = [statusEnd]string{
	"ok", "protection", "no-vpid", "device", "peer-down", "overrun", "bad-response",
}

// String returns the status's name.
func (s Status) String() string {
	if s.Valid() {
		return statusNames[s]
	}
	return "status(" + strconv.Itoa(int(s)) + ")"
}

var statusErrors = [statusEnd]error{
	StatusProtection:  fmt.Errorf("remote: %w", ErrProtection),
	StatusNoVPID:      fmt.Errorf("remote: VPID not open: %w", ErrPeerDown),
	StatusDevice:      fmt.Errorf("rma: %w", ErrDevice),
	StatusPeerDown:    fmt.Errorf("remote: %w", ErrPeerDown),
	StatusOverrun:     fmt.Errorf("remote: %w", ErrOverrun),
	StatusBadResponse: fmt.Errorf("remote: response of the wrong length: %w", ErrInvalid),
}

// Err returns nil for StatusOK, and otherwise an error that wraps one of the package's
// sentinels. It does not allocate for valid values.
func (s Status) Err() error {
	if s.Valid() {
		return statusErrors[s]
	}
	return fmt.Errorf("rma: %v: %w", s, ErrInvalid)
}

package wire

import "errors"

var (
	// ErrMessage says that bytes are no message of this version. Disconnect who
	// sent them.
	ErrMessage = errors.New("broker: malformed message")

	// ErrRule says that a client broke the rules of the protocol, and so was
	// disconnected.
	ErrRule = errors.New("broker: protocol violation")

	// ErrBusy says that the broker does not keep up. Go on with TCP, and try later.
	ErrBusy = errors.New("broker: busy")

	// ErrClosed says that the Client or Server was closed.
	ErrClosed = errors.New("broker: closed")
)

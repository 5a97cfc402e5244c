package wire

import (
	"errors"

	"exnet/node/rpc"
)

var (
	// ErrMessage says that bytes are no message of this version. Disconnect the sender.
	ErrMessage = errors.New("broker: malformed message")

	// ErrRule says that a client broke the rules of the protocol, and so was disconnected.
	ErrRule = rpc.ErrRule

	// ErrBusy says that the broker does not keep up. Stay on TCP, and try again later.
	ErrBusy = rpc.ErrBusy

	// ErrClosed says that the Client or Server was closed.
	ErrClosed = errors.New("broker: closed")
)

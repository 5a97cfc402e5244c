package broker

import "errors"

var (
	// ErrMessage says that bytes are no message of this version. Disconnect who
	// sent them.
	ErrMessage = errors.New("broker: malformed message")

	// ErrNoBroker says that no broker serves this network namespace, or that it
	// cannot be trusted. Use TCP; a Client goes on looking for one.
	ErrNoBroker = errors.New("broker: none serves this network namespace")

	// ErrInUse says that another broker serves the namespace. Leave it to that one.
	ErrInUse = errors.New("broker: another one serves this network namespace")

	// ErrNone says that there is no offer for a connection. Go on with TCP.
	ErrNone = errors.New("broker: there is no offer for this connection")

	// ErrBusy says that the broker does not keep up. Go on with TCP, and try later.
	ErrBusy = errors.New("broker: it does not keep up")

	// ErrClosed says that the Client or Server was closed.
	ErrClosed = errors.New("broker: closed")

	// ErrRule says that a client broke the rules of the protocol, and so was
	// disconnected.
	ErrRule = errors.New("broker: rule of the protocol broken")

	// errSlow is the end of a client that does not read.
	errSlow = errors.New("broker: its queue is full")
)

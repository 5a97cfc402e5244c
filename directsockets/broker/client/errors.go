package client

import "errors"

var (
	// ErrNoBroker says that no broker serves this network namespace, or that it
	// cannot be trusted. Use TCP; a Client goes on looking for one.
	ErrNoBroker = errors.New("broker: no broker serves this network namespace")

	// ErrNone says that there is no offer for a connection. Go on with TCP.
	ErrNone = errors.New("broker: no offer for this connection")
)

package packet

import "errors"

var (

	// ErrSlow is the end of a client that does not read.
	ErrSlow = errors.New("broker: send queue is full")
)

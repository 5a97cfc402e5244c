package packet

import "errors"

var (

	// ErrSlow says that the reader is so slow that the queue is full. It ends the connection.
	ErrSlow = errors.New("broker: send queue is full")
)

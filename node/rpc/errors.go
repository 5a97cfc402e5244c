package rpc

import "errors"

var (
	// ErrRule says that the other side breaks the rules of the protocol. End the connection.
	ErrRule = errors.New("protocol violation")

	// ErrSlow says that the reader is so slow that the queue is full. It ends the connection.
	ErrSlow = errors.New("send queue is full")

	// ErrBusy says that the other side does not keep up. Try again later.
	ErrBusy = errors.New("busy")
)

package rpc

import "errors"

var (
	// ErrRule says that the other side breaks the rules of the protocol. End the connection.
	ErrRule = errors.New("protocol violation")

	// ErrSlow says that the reader is so slow that the queue is full. It ends the connection.
	ErrSlow = errors.New("send queue is full")

	// ErrOver says that the session has ended.
	ErrOver = errors.New("the session has ended")

	// ErrTooMany says that an account has too many sessions.
	ErrTooMany = errors.New("too many connections")

	// ErrBusy says that the other side does not keep up. Try again later.
	ErrBusy = errors.New("busy")
)

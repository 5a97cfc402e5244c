package stream

import "syscall"

// Engine carries the bytes of a link in place of its connections, which then carry the
// hellos and no more. See link/ofi.
//
// Concurrency: Send and Want are called by one goroutine at a time, and so are Receive and
// Arm, which may be called beside Receive.
type Engine interface {
	// Name is what the link is called in a status, such as ofi:tcp.
	Name() string

	// Fd is what becomes readable as Want and Arm have asked, and when the engine fails.
	// It is valid until Close.
	Fd() int

	// Hush takes note that Fd was readable.
	Hush()

	// Send copies what fits of parts, and returns how many bytes that is. EAGAIN: nothing.
	Send(parts [][]byte) (int, syscall.Errno)

	// Want has Fd become readable, once, when Send takes something again.
	Want()

	// Receive fills place, then more, with what has come, or a part of it. EAGAIN: nothing
	// has. 0 without an error: nothing will, and Err says why.
	Receive(place, more []byte) (int, syscall.Errno)

	// Arm has Fd become readable when something comes. It returns false if it has come
	// already.
	Arm() bool

	// Err is why nothing is sent or received any more.
	Err() error

	// Close ends the engine. No other method is being called, or will be.
	Close()
}

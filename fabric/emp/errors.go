package emp

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Errors of this package. The text of the error that wraps them says which node
// or file it is about, and what to do.
var (
	// ErrVersion says that a node of the fabric is of another version. Update
	// one of them.
	ErrVersion = errors.New("another version of exnet")

	// ErrAddress says that a living node has one of the IP addresses. Choose
	// another.
	ErrAddress = errors.New("IP address is taken")

	// ErrFull says that all node IDs are taken.
	ErrFull = errors.New("no node ID is free")

	// ErrRefused says that the other end of a connection is not the node, or not
	// of the user, that the fabric expects.
	ErrRefused = errors.New("connection refused")

	// ErrConfig says that the configuration cannot work.
	ErrConfig = errors.New("invalid configuration")

	// ErrHello says that a message is not a valid hello.
	ErrHello = errors.New("malformed hello")
)

// dirError adds to err what to do about a directory that cannot be used.
func dirError(err error) error {
	var hint string
	switch {
	case errors.Is(err, unix.EROFS):
		hint = ": choose a directory on a file system that can be written"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = ": the directory's file system is full: make room there, or choose another directory"
	case errors.Is(err, fs.ErrPermission):
		hint = ": join the fabric's group, or run as the user that it belongs to"
	case errors.Is(err, unix.ENOTSUP):
		hint = ": choose a directory on another file system, such as /run"
	}
	return fmt.Errorf("emp: %w%s", err, hint)
}

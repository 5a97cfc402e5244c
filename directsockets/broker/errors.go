package broker

import "errors"

var (
	// ErrInUse says that another broker serves the namespace. Leave it to that one.
	ErrInUse = errors.New("broker: another broker serves this network namespace")
)

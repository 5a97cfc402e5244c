package ofi

import "errors"

var (
	// ErrMissing: there is no helper, or no libfabric. Install one, or use another link.
	ErrMissing = errors.New("ofi: libfabric cannot be used")
	// ErrRefused: this version or provider is known not to work. Use another.
	ErrRefused = errors.New("ofi: refused")
	// ErrMismatch: the nodes do not agree on how to link. Give both the same --link.
	ErrMismatch = errors.New("ofi: the nodes do not agree")
	// ErrHelper: the helper has ended, or makes no sense. The link is down; a new one may
	// come up.
	ErrHelper = errors.New("ofi: helper failed")
	// ErrProvider: libfabric has lost the connection, or has not made one.
	ErrProvider = errors.New("ofi: libfabric")
)

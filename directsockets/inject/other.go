//go:build !amd64 && !arm64

package inject

import (
	"errors"
	"syscall"

	"exnet/internal/elffile"
)

// errMachine says that nothing can be done on this machine.
var errMachine = errors.New("it is for neither amd64 nor arm64")

// Supported reports whether this machine's programs can be done.
const Supported = false

// Launch says that it cannot.
func Launch(Config) error { return errMachine }

// Outcome says that there is none.
func Outcome(int, syscall.Errno, string) error { return errMachine }

// Known says that none is.
func Known(*elffile.File, string) bool { return false }

// Go says that no program can be done.
func Go(string) error { return errMachine }

// Attach says that it cannot.
func Attach(int, string) error { return errMachine }

// ErrHas is for machines where programs can be done.
var ErrHas = errors.New("inject: it has the library already")

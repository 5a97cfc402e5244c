//go:build !amd64

package inject

import "os"

// Supported reports whether this machine's programs can be done.
const Supported = false

func startDetached([]string, []string, *os.File) error { return errMachine }

// Trace says that they cannot.
func Trace(*os.File) (Config, error) { return Config{}, errMachine }

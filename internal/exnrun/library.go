package exnrun

import "errors"

// buildLibrary returns the path of the library of this exn-run.
func buildLibrary() (string, error) {
	return "", errors.New("there is no library yet: name one with --library")
}

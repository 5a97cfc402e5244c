package exnrun

import (
	"context"
	"errors"
	"time"

	"exnet/directsockets/preload"
)

// buildTime is how long it may take to build the library.
const buildTime = time.Minute

// buildLibrary returns the path of the library that belongs to this exn-run, which
// it builds if that has not been done yet.
func buildLibrary() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	path, err := preload.Build(ctx)
	if errors.Is(err, preload.ErrCompiler) {
		return "", errors.Join(err, errors.New("or name one with --library"))
	}
	return path, err
}

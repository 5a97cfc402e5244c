package exnrun

import (
	"context"
	"errors"
	"time"

	"exnet/directsockets/preload"
)

// Times of building the library: how long it may take, and when the user is told
// that it does.
const (
	buildTime = 5 * time.Minute
	tellTime  = 2 * time.Second
)

// buildLibrary returns the path of the library that belongs to this exn-run, for programs with
// glibc or musl; it is built if that has not been done yet.
func buildLibrary(musl bool, say func(format string, args ...any)) (string, error) {
	defer time.AfterFunc(tellTime, func() { say("building the library, once for each version") }).Stop()
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	if musl {
		return preload.BuildMusl(ctx)
	}
	path, err := preload.Build(ctx)
	if errors.Is(err, preload.ErrCompiler) {
		return "", errors.Join(err, errors.New("or name one with --library"))
	}
	return path, err
}

// buildFree is the same for the library that is put into static programs.
func buildFree(say func(format string, args ...any)) (string, error) {
	defer time.AfterFunc(tellTime, func() { say("building the library for static programs, once for each version") }).Stop()
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	return preload.BuildFree(ctx)
}

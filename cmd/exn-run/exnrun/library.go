package exnrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exnet/directsockets/preload"
)

// Times of building the library: how long it may take, and when the user is told
// that it does.
const (
	buildTime = 5 * time.Minute
	tellTime  = 2 * time.Second
)

// buildTold runs build, for buildTime at most, and returns its path. It tells the user if that
// takes long.
func buildTold(what string, build func(context.Context) (string, error), say func(format string, args ...any)) (string, error) {
	defer time.AfterFunc(tellTime, func() { say("building %s, once for each version", what) }).Stop()
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	path, err := build(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("building %s took longer than %v: try again when the machine has less to do, or install a package of ./release.sh", what, buildTime)
	}
	return path, err
}

// buildLibrary returns the path of the library that belongs to this exn-run, for programs with
// glibc or musl; it is built if that has not been done yet.
func buildLibrary(musl bool, say func(format string, args ...any)) (string, error) {
	build := preload.Build
	if musl {
		build = preload.BuildMusl
	}
	path, err := buildTold("the library", build, say)
	if !musl && errors.Is(err, preload.ErrCompiler) {
		return "", errors.Join(err, errors.New("or name one with --library"))
	}
	return path, err
}

// buildFree is the same for the library that is put into static programs.
func buildFree(say func(format string, args ...any)) (string, error) {
	return buildTold("the library for static programs", preload.BuildFree, say)
}

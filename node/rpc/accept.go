package rpc

import (
	"context"
	"errors"
	"iter"
	"net"
	"time"
)

// Accept yields the connections of ln until ln is closed. An error, such as of having no
// descriptors left, may pass: it tries again after pause, and calls failed for the first
// of several in a row. The end of ctx ends a pause, and nothing else: it is the caller's
// to close ln.
//
// Concurrency: several may have one listener.
func Accept(ctx context.Context, ln *net.UnixListener, pause time.Duration, failed func(error)) iter.Seq[*net.UnixConn] {
	return func(yield func(*net.UnixConn) bool) {
		for failing := false; ; {
			conn, err := ln.AcceptUnix()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err == nil:
				failing = false
				if !yield(conn) {
					return
				}
				continue
			case !failing:
				failed(err)
			}
			failing = true
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

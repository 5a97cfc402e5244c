package ofi

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/link"
	"exnet/fabric/link/stream"
)

// Engine carries the bytes of a stream link by libfabric.
//
// Concurrency: see stream.Engine.
type Engine struct {
	ring     *ring
	process  *process
	info     info
	cause    link.Cause
	watching sync.WaitGroup
}

var _ stream.Engine = (*Engine)(nil)

// watchHelper begins to wait for the helper's end.
func (e *Engine) watchHelper() error {
	if err := e.process.ctl.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("ofi: %w", err)
	}
	e.watching.Go(func() {
		_, err := e.process.readLine("") // nothing is to come but the reason
		if err == nil {
			err = fmt.Errorf("%w: it sent no message", ErrHelper)
		}
		e.fail(err)
		ringBell(e.ring.bell)
	})
	return nil
}

func (e *Engine) fail(why error) { e.cause.Set(why) }

// Name implements stream.Engine.
func (e *Engine) Name() string { return namePrefix + e.info.provider }

// Fd implements stream.Engine.
func (e *Engine) Fd() int { return e.ring.bell }

// Hush implements stream.Engine.
func (e *Engine) Hush() { e.ring.hush() }

// Want implements stream.Engine.
func (e *Engine) Want() { e.ring.armSent() }

// Arm implements stream.Engine.
func (e *Engine) Arm() bool { return e.ring.armReceived() && e.cause.Err() == nil }

// Send implements stream.Engine.
func (e *Engine) Send(parts [][]byte) (int, syscall.Errno) {
	if e.cause.Err() != nil {
		return 0, unix.EPIPE
	}
	n, err := e.ring.send(parts)
	switch {
	case err != nil:
		e.fail(err)
		return 0, unix.EPROTO
	case n == 0:
		return 0, unix.EAGAIN
	}
	return n, 0
}

// Receive implements stream.Engine. What came before the helper's end is there still.
func (e *Engine) Receive(place, more []byte) (int, syscall.Errno) {
	ended := e.cause.Err() != nil
	n, err := e.ring.receive(place, more)
	switch {
	case err != nil:
		e.fail(err)
		return 0, unix.EPROTO
	case n == 0 && !ended:
		return 0, unix.EAGAIN
	}
	return n, 0
}

// Err implements stream.Engine.
func (e *Engine) Err() error {
	if err := e.cause.Err(); err != nil {
		return err
	}
	return errors.New("ofi: it works")
}

// Close implements stream.Engine.
func (e *Engine) Close() {
	e.process.killAndWait()
	e.watching.Wait()
	e.ring.close()
}

package cli

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// Output is a command's standard output. It keeps the first error of Write, because most
// callers do not check it, and results lost on a full disk are a failure. A reader that closes
// its pipe is not an error.
type Output struct {
	w   io.Writer
	mu  sync.Mutex
	err error // guarded by mu
}

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w} }

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Check returns err or, if that is nil, the first error of writing.
func (o *Output) Check(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		return o.err
	}
	return err
}

// Unwrap returns the writer behind w if w is an Output, else w. Tests for a terminal and
// started programs need it.
func Unwrap(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok {
		return o.w
	}
	return w
}

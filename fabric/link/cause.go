package link

import "sync/atomic"

// Cause is why a link is down: the first error that it was given. The zero value is that of a
// link that is up.
//
// Concurrency: all methods may be called from many goroutines.
type Cause struct{ first atomic.Pointer[error] }

// Set takes the link down, and reports whether it was up.
func (c *Cause) Set(err error) bool { return c.first.CompareAndSwap(nil, &err) }

// Err is why the link is down; nil while it is up.
func (c *Cause) Err() error {
	if e := c.first.Load(); e != nil {
		return *e
	}
	return nil
}

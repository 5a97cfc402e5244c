package link

import "sync/atomic"

// Cause is why a link is down: the first error that was set. The zero Cause belongs to a link that
// is up.
//
// Concurrency: all methods may be called from many goroutines.
type Cause struct{ first atomic.Pointer[error] }

// Set takes the link down, and reports whether it was up.
func (c *Cause) Set(err error) bool { return c.first.CompareAndSwap(nil, &err) }

// Err returns why the link is down, or nil while it is up.
func (c *Cause) Err() error {
	if e := c.first.Load(); e != nil {
		return *e
	}
	return nil
}

// Package ctxend cancels, with a context, calls that take none, such as one that
// waits in a socket.
package ctxend

import (
	"context"
	"sync"
)

// Do calls end, from a goroutine of its own, when ctx ends, unless stop is called before.
// When stop returns, end runs no more, and it has run if ctx has ended: so who waits, after
// stop, for what end ends does not wait for ever. (The stop of context.AfterFunc promises
// neither: it may win over a context that has ended, and end is not called then.)
//
// end is called once at most, and must not call stop. stop may be called more than once.
func Do(ctx context.Context, end func()) (stop func()) {
	var once sync.Once
	unhook := context.AfterFunc(ctx, func() { once.Do(end) })
	return func() {
		unhook()
		if ctx.Err() != nil {
			once.Do(end)
		}
	}
}

package broker

import (
	"context"
	"errors"
	"time"
)

// IdleTime is how long a broker of Serve waits for clients.
const IdleTime = 3 * time.Second

// Serve runs a broker until ctx is cancelled, or there has been no client for
// IdleTime. It is for a namespace without a daemon of its own, as when exn-run
// brings loopback connections together without root. nil: it has ended, or there is
// another broker. ready is called when clients can connect; nil: nobody.
func Serve(ctx context.Context, cfg Config, ready func()) error {
	s, err := New(cfg)
	if err != nil && !errors.Is(err, ErrInUse) {
		return err
	}
	if ready != nil {
		ready()
	}
	if err != nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		for wait := IdleTime; wait > 0; wait = IdleTime - s.Idle() {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
	}()
	return errors.Join(s.Run(ctx), s.Close())
}

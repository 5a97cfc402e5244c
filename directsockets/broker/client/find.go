package client

import (
	"context"
	"errors"
	"fmt"
)

// Find returns the path of the broker that serves the calling thread's network
// namespace, or that EXNET_BROKER names, as a Client would find it. ErrNoBroker:
// there is none, or none that can be trusted.
func Find(ctx context.Context) (path string, err error) {
	all, err := paths()
	if err != nil {
		return "", err
	}
	var errs []error
	for _, path := range all {
		conn, err := dialBroker(ctx, path)
		if err == nil {
			return path, conn.Close()
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("%w: %w", ErrNoBroker, errors.Join(errs...))
}

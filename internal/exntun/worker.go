package exntun

import (
	"context"
	"os"

	"exnet/internal/tcpbench"
)

// runWorker makes this program one end of a measurement.
func runWorker(_ context.Context, p program, _ []string) error {
	// The end of standard input is the end of exn-tun, or of its interest.
	return tcpbench.RunWorker(os.Stdin, p.stdout, func() { os.Exit(exitFailure) })
}

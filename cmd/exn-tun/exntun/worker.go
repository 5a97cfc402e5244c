package exntun

import (
	"io"
	"os"

	"exnet/internal/cli"
	"exnet/internal/tcpbench"
)

// runWorker makes this program one end of a measurement.
func runWorker(stdout io.Writer) error {
	// Standard input ends when exn-tun ends or needs no more results.
	return tcpbench.RunWorker(os.Stdin, stdout, func() { os.Exit(cli.ExitFailure) })
}

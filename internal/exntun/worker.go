package exntun

import (
	"io"
	"os"

	"exnet/internal/cli"
	"exnet/internal/tcpbench"
)

// runWorker makes this program one end of a measurement.
func runWorker(stdout io.Writer) error {
	// The end of standard input is the end of exn-tun, or of its interest.
	return tcpbench.RunWorker(os.Stdin, stdout, func() { os.Exit(cli.ExitFailure) })
}

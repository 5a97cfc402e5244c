package killmatrix

import (
	"context"
	"flag"
	"os"
	"testing"

	"exnet/cmd/exn-run/exnrun"
	"exnet/cmd/exn-tun/exntun"
)

var (
	full   = flag.Bool("matrix.full", false, "run every cell of the kill matrix")
	only   = flag.String("matrix.run", "", "run only the cells whose name this regular expression matches, in full")
	outage = flag.Duration("matrix.outage", 0, "how long a victim is stopped, or not started again, at least")
	tries  = flag.Int("matrix.tries", 5, "how often a cell that was too slow may be tried")
)

// asEnv makes the test binary another program: peer, exn-tun or exn-run.
const asEnv = "EXN_KILLMATRIX_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(asEnv) {
	case "peer":
		os.Exit(runPeer())
	case "exn-tun":
		os.Exit(exntun.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	case "exn-run":
		os.Exit(exnrun.Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

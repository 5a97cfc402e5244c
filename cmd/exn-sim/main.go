// Exn-sim simulates which links of a network the jobs of a parallel machine load, by
// placement and routing. See exn-sim -h.
package main

import (
	"context"
	"os"

	"exnet/cmd/exn-sim/exnsim"
)

func main() { os.Exit(exnsim.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

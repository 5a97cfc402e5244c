// Exn-mem runs programs whose memory is partly on another node. See exn-mem -h.
package main

import (
	"context"
	"os"

	"exnet/cmd/exn-mem/exnmem"
)

func main() { os.Exit(exnmem.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

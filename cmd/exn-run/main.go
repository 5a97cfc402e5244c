// Exn-run runs a program on direct sockets. See exn-run -h.
package main

import (
	"os"

	"exnet/cmd/exn-run/exnrun"
)

func main() {
	os.Exit(exnrun.Run(os.Args[1:], os.Stdout, os.Stderr))
}

// Exn-go builds Go programs with direct sockets. See exn-go -h.
package main

import (
	"os"

	"exnet/cmd/exn-go/exngo"
)

func main() {
	os.Exit(exngo.Run(os.Args[1:], os.Stdout, os.Stderr))
}

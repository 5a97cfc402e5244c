// Exn-tun runs TCP/IP over an emulated EXTOLL fabric, through an interface exn0
// that programs use like any other. See exn-tun -h.
package main

import (
	"context"
	"os"

	"exnet/cmd/exn-tun/exntun"
)

func main() {
	// Run handles signals itself: what Ctrl-C means depends on what is running.
	os.Exit(exntun.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// Command program is package numbered's Command on package net: nothing in it knows of exnet, so
// that exn-go can build it, and plain TCP carries it otherwise.
package main

import (
	"net"
	"os"

	"exnet/test/numbered"
)

func main() {
	var d net.Dialer
	os.Exit(numbered.Command(os.Args[1:], d.DialContext, net.Listen))
}

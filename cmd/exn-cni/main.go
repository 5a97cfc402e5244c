// Exn-cni attaches containers to a fabric, as a plugin of the Container Network
// Interface. See docs/containers.md.
package main

import (
	"os"

	"exnet/cmd/exn-cni/exncni"
)

func main() {
	os.Exit(exncni.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

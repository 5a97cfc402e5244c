package exncni

import (
	"context"
	"fmt"
	"io"

	"github.com/containernetworking/cni/pkg/skel"

	"exnet/directsockets/preload"
	"exnet/internal/version"
)

// hookCommand makes exn-cni an OCI hook. Runtimes call a CNI plugin without arguments.
const hookCommand = "oci-hook"

const usage = `exn-cni attaches containers to a fabric. Container runtimes run it:

  as a CNI plugin   the environment says what to do (CNI_COMMAND), standard input
                    has the network's configuration
  exn-cni oci-hook  as a precreate hook: standard input has a container's
                    config.json; containers with EXNET=1 in the environment or the
                    annotation io.exnet=1 get direct sockets
  exn-cni library   print the path of the library for direct sockets, which is
                    built if that has not been done yet
  exn-cni version   print the version

docs/containers.md has configurations for podman, Docker and Kubernetes.
`

// Run is the command. It returns the exit status: 0 done, 1 failed, 2 wrong usage.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return runPlugin(stdout, stderr)
	}
	switch args[0] {
	case hookCommand:
		if err := runHook(stdin, stdout); err != nil {
			fmt.Fprintln(stderr, "exn-cni:", err)
			return 1
		}
	case "library":
		path, err := preload.Build(context.Background())
		if err != nil {
			fmt.Fprintln(stderr, "exn-cni:", err)
			return 1
		}
		fmt.Fprintln(stdout, path)
	case "version", "--version":
		fmt.Fprintln(stdout, "exn-cni", version.String())
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
	default:
		fmt.Fprintf(stderr, "exn-cni: unknown command %q: use oci-hook, library, version, or none at all\n", args[0])
		return 2
	}
	return 0
}

// runPlugin does what the environment says, and writes an error as the specification
// wants it.
func runPlugin(stdout, stderr io.Writer) int {
	e := skel.PluginMainFuncsWithError(funcs, versions, "exn-cni "+version.String()+", a CNI plugin: exn-cni -h")
	if e == nil {
		return 0
	}
	if err := e.Print(); err != nil {
		fmt.Fprintln(stderr, "exn-cni:", err)
	}
	return 1
}

package exncni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"

	"exnet/directsockets/preload"
	"exnet/internal/cli"
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
	out := cli.NewOutput(stdout)
	return report(stderr, out.Check(run(args, stdin, out)))
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 1 && slices.Contains([]string{hookCommand, "library", "version", "--version", "help", "-h", "--help"}, args[0]) {
		return cli.Usagef("%s takes no arguments", args[0])
	}
	switch args[0] {
	case hookCommand:
		return runHook(stdin, stdout)
	case "library":
		path, err := preload.Build(context.Background())
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, path)
	case "version", "--version":
		fmt.Fprintln(stdout, "exn-cni", version.String())
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
	default:
		return cli.Usagef("unknown command %q: use oci-hook, library, version, or none at all", args[0])
	}
	return nil
}

func report(stderr io.Writer, err error) int {
	return cli.Report(stderr, "exn-cni", err, cli.ExitFailure)
}

// runPlugin runs the command in the environment, and writes an error in the form of the
// specification.
func runPlugin(stdout, stderr io.Writer) int {
	e := skel.PluginMainFuncsWithError(funcs, versions, "exn-cni "+version.String()+", a CNI plugin: exn-cni -h")
	if e == nil {
		return 0
	}
	e.Msg, e.Details = cli.Text(errors.New(e.Msg)), cli.Text(errors.New(e.Details))
	if err := e.Print(); err != nil {
		return report(stderr, err)
	}
	return cli.ExitFailure
}

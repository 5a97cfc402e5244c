package exncni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"exnet/directsockets/preload"
	"exnet/internal/cli"
	"exnet/internal/version"
)

// hookCommand makes exn-cni an OCI hook. Runtimes call a CNI plugin without arguments.
const hookCommand = "oci-hook"

const synopsis = `exn-cni
exn-cni oci-hook
exn-cni library
exn-cni man
exn-cni version`

const usage = `exn-cni attaches containers to a fabric. Container runtimes run it:

  as a CNI plugin   the environment says what to do (CNI_COMMAND), standard input
                    has the network's configuration
  exn-cni oci-hook  as a precreate hook: standard input has a container's
                    config.json; containers with EXNET=1 in the environment or the
                    annotation io.exnet=1 get direct sockets
  exn-cni library   print the path of the library for direct sockets, which is
                    built if that has not been done yet
  exn-cni man       print the man page
  exn-cni version   print the version

docs/containers.md has configurations for podman, Docker and Kubernetes.
`

// Run is the command. It returns the exit status: 0 done, 1 failed, 2 wrong usage.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return runPlugin(stdin, stdout, stderr)
	}
	out := cli.NewOutput(stdout)
	return reportError(stderr, out.Check(run(args, stdin, out)))
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 1 && slices.Contains([]string{hookCommand, "library", "man", "version", "--version", "help", "-h", "--help"}, args[0]) {
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
	case "man":
		p := cli.NewPage("exn-cni", "attach containers to a fabric")
		p.Section("SYNOPSIS", synopsis)
		p.Section("DESCRIPTION", usage)
		p.Section("EXIT STATUS", "0 done, 1 failed, 2 wrong usage.")
		p.Section("SEE ALSO", "exn-tun(1), exn-run(1)")
		fmt.Fprint(stdout, p.String(version.String()))
	case "help", "-h", "--help":
		fmt.Fprint(stdout, cli.WithDocs(usage))
	default:
		return cli.Usagef("unknown command %q: use oci-hook, library, man, version, or none at all", args[0])
	}
	return nil
}

func reportError(stderr io.Writer, err error) int {
	return cli.Report(stderr, "exn-cni", err, cli.ExitFailure)
}

// maxConfig bounds the length of a network's configuration, in bytes.
const maxConfig = 16 << 20

// failure is an error in the form of the specification.
type failure struct {
	CNIVersion string `json:"cniVersion"` // that of the configuration, if the plugin speaks it
	*types.Error
}

// runPlugin runs the command in the environment, and writes an error in the form of the
// specification.
func runPlugin(stdin io.Reader, stdout, stderr io.Writer) int {
	netconf, e := readConfig(stdin)
	if e == nil {
		e = skel.PluginMainFuncsWithError(funcs, versions, "exn-cni "+version.String()+", a CNI plugin: exn-cni -h")
	}
	if e == nil {
		return 0
	}
	e.Msg, e.Details = cli.Text(errors.New(e.Msg)), cli.Text(errors.New(e.Details))
	b, err := json.MarshalIndent(failure{versionOf(netconf), e}, "", "    ")
	if err != nil {
		return reportError(stderr, err)
	}
	if _, err := stdout.Write(append(b, '\n')); err != nil {
		return reportError(stderr, err)
	}
	return cli.ExitFailure
}

// readConfig reads the network's configuration, and leaves it in os.Stdin for package skel. Without
// a command, and for VERSION, there is none to read.
func readConfig(stdin io.Reader) ([]byte, *types.Error) {
	if c := os.Getenv("CNI_COMMAND"); c == "" || c == "VERSION" {
		return nil, nil
	}
	netconf, err := io.ReadAll(io.LimitReader(stdin, maxConfig+1))
	if err == nil && len(netconf) > maxConfig {
		err = fmt.Errorf("the network's configuration is longer than %d MiB", maxConfig>>20)
	}
	out, in, pipeErr := os.Pipe()
	if err := errors.Join(err, pipeErr); err != nil {
		return nil, types.NewError(types.ErrIOFailure, "standard input: "+err.Error(), "")
	}
	os.Stdin = out
	go func() { // ends with the process if skel does not read all
		_, _ = in.Write(netconf)
		in.Close()
	}()
	return netconf, nil
}

// versionOf returns the version of the specification to answer a configuration in: its own, or the
// plugin's latest if the plugin does not speak that.
func versionOf(netconf []byte) string {
	v, err := new(cniversion.ConfigDecoder).Decode(netconf)
	if spoken := versions.SupportedVersions(); err != nil || !slices.Contains(spoken, v) {
		return spoken[len(spoken)-1]
	}
	return v
}

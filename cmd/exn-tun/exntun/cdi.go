package exntun

import (
	"context"
	"fmt"
	"os"

	"exnet/cmd/exn-tun/internal/cdi"
	"exnet/directsockets/broker"
	"exnet/internal/command"

	"github.com/spf13/cobra"
)

func newCDI() *cobra.Command {
	return &cobra.Command{
		Use: "cdi [flags]", Short: "print how container runtimes give a container direct sockets",
		Long: `Prints the specification of the Container Device Interface (CDI) that gives a
container direct sockets by exn-tun agent, as JSON, which YAML is a superset of.
podman, Docker 25 and later, containerd and CRI-O read it in /etc/cdi. A
container then asks by the name of a device:

  exnet.io/direct=all            by LD_PRELOAD, with glibc or musl
  exnet.io/direct=ld.so.preload  by /etc/ld.so.preload: for an image with glibc
                                 that has an LD_PRELOAD of its own
  exnet.io/direct=go             for programs that exn-go has built

The paths in it are those of this host's library: print it anew after the
library has moved. See docs/any-network.md.`,
		Example: `exn-tun cdi > /etc/cdi/exnet.yaml
exn-tun cdi | jq -r '.devices[].name'`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runCDI(c.Context(), programOf(c)) },
	}
}

func runCDI(ctx context.Context, p program) error {
	l, missing, err := cdi.Find(ctx)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 { // a container does not start without it, and it may ask before the agent runs
		if err := broker.Keep(); err != nil {
			return err
		}
	}
	for _, m := range missing {
		fmt.Fprintln(p.stderr, m)
	}
	return cdi.New(l).Write(p.stdout)
}

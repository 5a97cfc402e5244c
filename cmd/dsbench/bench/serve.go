package bench

import (
	"context"
	"fmt"
	"io"
	"net"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/command"
	"exnet/internal/tcpbench"

	"github.com/spf13/cobra"
)

func newServe() *cobra.Command {
	address := ":" + paths.ServePort
	c := &cobra.Command{
		Use: "serve [flags]", Short: "serve as the other end of MEASURE --connect HOST",
		Long: `Serves as the other end of dsbench MEASURE --connect HOST, on another machine, in
another namespace or in a container. It serves anyone who connects, one measurement
at a time: let it listen only where you know who can connect. Ctrl-C ends it.`,
		Example: `dsbench serve
    listens on all addresses, port ` + paths.ServePort + `
dsbench serve --listen 10.2.0.9:9000
    on one address only; there: dsbench stream --connect 10.2.0.9:9000`,
		Args: command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runServe(c.Context(), address, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&address, "listen", address, "`ADDRESS` where it listens (:"+paths.ServePort+")")
	return c
}

// runServe does dsbench serve.
func runServe(ctx context.Context, address string, stdout, stderr io.Writer) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", address, err)
	}
	fmt.Fprintf(stdout, "listening on %v\n", l.Addr())
	say := func(text string) { fmt.Fprintln(stderr, text) }
	return tcpbench.Serve(ctx, l, say)
}

package dsbench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"

	"exnet/internal/dsbench/paths"
	"exnet/internal/tcpbench"
)

const serveHelp = `Usage: dsbench serve [flags]

Is the other end of dsbench MEASURE --connect HOST, on another machine, in another
namespace or container. It does one measurement at a time, for whoever connects:
let it listen only where you know who that can be. Ctrl-C ends it.

Examples:
  dsbench serve
      listens on all addresses, port %[1]s
  dsbench serve --listen 10.2.0.9:9000
      on one address only; there: dsbench stream --connect 10.2.0.9:9000

Flags:
  --listen ADDRESS   where it listens (:%[1]s)
`

// runServe does dsbench serve.
func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	address := fs.String("listen", ":"+paths.ServePort, "")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, serveHelp, paths.ServePort)
		return exitOK
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "dsbench serve: %v (see dsbench serve -h)\n", err)
		return exitUsage
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return fail(stderr, "serve", fmt.Errorf("--listen %s: %w", *address, err))
	}
	fmt.Fprintf(stdout, "listening on %v\n", l.Addr())
	say := func(text string) { fmt.Fprintln(stderr, text) }
	if err := tcpbench.Serve(ctx, l, say); err != nil {
		return fail(stderr, "serve", err)
	}
	return exitOK
}

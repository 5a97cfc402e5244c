// Dsbench measures TCP over several paths side by side: the kernel's loopback
// and veth pair, exn0 with its nodes in one process or two, and direct sockets.
// See dsbench -h.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"exnet/cmd/dsbench/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal ends the run in order, the next one ends the program.
	context.AfterFunc(ctx, stop)
	// When nobody reads the results any more, the run ends in order, too.
	ctx, _ = signal.NotifyContext(ctx, syscall.SIGPIPE)
	os.Exit(bench.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

package paths

import (
	"context"
	"io"
	"os"

	"exnet/cmd/dsbench/internal/rawbench"
	"exnet/internal/ctxend"
	"exnet/internal/tcpbench"
	"exnet/internal/worker"
)

// The hidden commands with which dsbench starts itself, besides
// tcpbench.WorkerCommand.
const (
	nodeCommand     = "node-worker"     // holds the nodes of path exn
	daemonCommand   = "daemon-worker"   // holds one of the two nodes of path exn-shm
	relayCommand    = "relay-worker"    // joins the two TUN devices of path relay
	streamCommand   = "stream-worker"   // holds one of the two nodes of path exn-stream
	netstackCommand = "netstack-worker" // is path netstack
	brokerCommand   = "broker-worker"   // serves direct sockets of path ds
)

// WorkerOf returns what a hidden command does, nil if it is none.
func WorkerOf(command string) func(in io.Reader, out io.Writer) error {
	// The end of standard input is the end of dsbench, or of its interest.
	exit := func() { os.Exit(1) }
	switch command {
	case tcpbench.WorkerCommand:
		return func(in io.Reader, out io.Writer) error { return tcpbench.RunWorker(in, out, exit) }
	case nodeCommand:
		return func(in io.Reader, out io.Writer) error { return worker.Run(in, out, runNodes) }
	case relayCommand:
		return func(in io.Reader, out io.Writer) error { return worker.Run(in, out, runRelay) }
	case daemonCommand:
		return func(in io.Reader, out io.Writer) error { return worker.Run(in, out, runDaemon) }
	case streamCommand:
		return func(in io.Reader, out io.Writer) error { return worker.Run(in, out, runStream) }
	case brokerCommand:
		return func(in io.Reader, out io.Writer) error { return worker.Run(in, out, runBroker) }
	case rawbench.Command:
		return func(in io.Reader, out io.Writer) error {
			return worker.Run(in, out, func(ctx context.Context, j rawbench.Job, note func(any) error) (any, error) {
				defer ctxend.Do(ctx, exit)()
				return rawbench.Work(ctx, j, note)
			})
		}
	case netstackCommand:
		return func(in io.Reader, out io.Writer) error {
			return worker.Run(in, out, func(ctx context.Context, j netstackJob, _ func(any) error) (any, error) {
				defer ctxend.Do(ctx, exit)()
				return runNetstack(j)
			})
		}
	}
	return nil
}

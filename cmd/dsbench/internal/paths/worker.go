package paths

import (
	"context"
	"io"
	"os"

	"exnet/internal/tcpbench"
	"exnet/internal/worker"
)

// The hidden commands with which dsbench starts itself, besides
// tcpbench.WorkerCommand.
const (
	nodeCommand   = "node-worker"   // holds the nodes of path exn
	daemonCommand = "daemon-worker" // holds one of the two nodes of path exn-shm, exn-stream or ds-fabric
	relayCommand  = "relay-worker"  // joins the two TUN devices of path relay
	brokerCommand = "broker-worker" // serves direct sockets of path ds
)

// WorkerOf returns what a hidden command does, nil if it is none.
func WorkerOf(command string) func(in io.Reader, out io.Writer) error {
	switch command {
	case tcpbench.WorkerCommand:
		return func(in io.Reader, out io.Writer) error { return tcpbench.RunWorker(in, out, exitWorker) }
	case nodeCommand:
		return newWorker(runNodes)
	case relayCommand:
		return newWorker(runRelay)
	case daemonCommand:
		return newWorker(runDaemon)
	case brokerCommand:
		return newWorker(runBroker)
	}
	return nil
}

// exitWorker ends a worker whose standard input has ended: dsbench has, or its interest.
func exitWorker() { os.Exit(1) }

// newWorker returns a worker that does jobs by run.
func newWorker[Job any](run func(context.Context, Job, func(any) error) (any, error)) func(io.Reader, io.Writer) error {
	return func(in io.Reader, out io.Writer) error { return worker.Run(in, out, run) }
}

package exntun

import (
	"context"
	"errors"
	"io"

	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/tcpbench"

	"github.com/spf13/cobra"
)

// program has the standard streams that a command writes to.
type program struct {
	stdout, stderr io.Writer
}

// programOf returns the program of a command.
func programOf(c *cobra.Command) program { return program{c.OutOrStdout(), c.ErrOrStderr()} }

// parts make the commands of parts of the project that can be deleted, as housetest's TestParts
// does: the file of such a command enters it here.
var parts []func() *cobra.Command

// newRoot returns exn-tun's commands, in the order of the help text.
func newRoot() *cobra.Command {
	root := command.New("exn-tun", "TCP/IP over an emulated EXTOLL fabric",
		"exn-tun runs TCP/IP over an emulated EXTOLL fabric, through an interface exn0.")
	root.Example = `exn-tun demo
    two nodes in two namespaces, and the same two programs over veth, over
    exn0, and by direct sockets
exn-tun demo --serve 'iperf3 -s' -- iperf3 -c 10.2.0.2
    any two programs over exn0
exn-tun up --netns a --addr 10.2.0.1/24
    one node as a daemon; others on this host find it`
	root.Annotations = map[string]string{command.EndKey: `Without root the demonstration uses a user namespace, where that is allowed.
Results go to standard output, all else to standard error. Exit status: 0 done,
1 failed, 2 wrong usage.`}
	root.AddCommand(newDemo(), newAgent(), newDevicePlugin(), newAttach(), newCDI(), newUp(), newDown(), newStatus(), newFabrics(), newTopo(), newProfile(), newRoute(), newSet(), newRegisters(), newDirect(), newExplain(), newTop(), newCapture(), newCheck(), newKey(), newDoctor(), newCluster())
	for _, part := range parts {
		root.AddCommand(part())
	}
	completeValues(root)
	return root
}

// Run runs the program with args, which do not include its name. It writes results to stdout
// and all else to stderr, and returns the exit status. When ctx is cancelled, or at SIGINT,
// SIGTERM or SIGHUP, it cleans up and returns. Unless they are files, stdout and stderr are
// written by several goroutines.
//
// Run starts the program itself again (/proc/self/exe) with the single argument
// "worker", and without privileges with its own arguments (os.Args) in a user
// namespace; in both cases main must call Run again.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == tcpbench.WorkerCommand {
		return cli.Report(stderr, "exn-tun worker", runWorker(stdout), cli.ExitFailure)
	}
	return command.Run(ctx, newRoot(), args, stdout, stderr)
}

// errInterrupted says that a signal or the context ended the command.
var errInterrupted = errors.New("interrupted")

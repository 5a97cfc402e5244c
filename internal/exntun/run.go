package exntun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"exnet/internal/tcpbench"
)

// Exit statuses. A user's command has its own.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// program is what a command has of the process around it.
type program struct {
	stdout, stderr io.Writer
}

// command is something that exn-tun does.
type command struct {
	name  string
	about string // for the help text; "": not shown
	run   func(ctx context.Context, p program, args []string) error
}

// commands lists them in the order of the help text.
func commands() []command {
	return []command{
		{"demo", "try and measure exn0 between namespaces, or run programs", runDemo},
		{"up", "run a node of a fabric, until it is told to end", runUp},
		{"down", "end the nodes of a fabric", runDown},
		{"status", "show nodes: interface, peers, receive mode, counters", runStatus},
		{"topo", "draw how a fabric is wired, and the load of each link", runTopo},
		{"set", "change how a running node receives frames", runSet},
		{"capture", "write the frames of a running node as pcapng", runCapture},
		{"check", "check a configuration file", runCheck},
		{"key", "make the keys by which nodes of other hosts know each other", runKey},
		{"doctor", "look at this host: what is missing, what would be faster", runDoctor},
		{"version", "print the version", runVersion},
		{tcpbench.WorkerCommand, "", runWorker},
	}
}

// Run is the program: it does what args (without the program's name) say,
// writes results to stdout and all else to stderr, and returns the exit status.
// When ctx is cancelled, or at SIGINT, SIGTERM or SIGHUP, it cleans up and
// returns. Unless they are files, stdout and stderr are written by several
// goroutines.
//
// Run starts the program itself again (/proc/self/exe) with the single argument
// "worker", and without privileges with its own arguments (os.Args) in a user
// namespace; in both cases main must call Run again.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, generalHelp())
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "-h", "-help", "--help", "help":
		if len(rest) == 0 {
			fmt.Fprint(stdout, generalHelp())
			return exitOK
		}
		name, rest = rest[0], []string{"-h"}
	case "-version", "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return status(name, stderr, c.run(ctx, program{stdout, stderr}, rest))
		}
	}
	fmt.Fprintf(stderr, "exn-tun: unknown command %q: choose from %s, or see exn-tun -h\n", name, commandNames())
	return exitUsage
}

// usageError says that the arguments are wrong.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errInterrupted says that a signal or the context ended it all.
var errInterrupted = errors.New("interrupted")

// exitStatus is an exit status that needs no more words.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// status prints what is to be said about err, in one line, and returns the exit
// status.
func status(name string, stderr io.Writer, err error) int {
	var exit exitStatus
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "exn-tun %s: %s (see exn-tun %s -h)\n", name, oneLine(err), name)
		return exitUsage
	}
	fmt.Fprintf(stderr, "exn-tun %s: %s\n", name, oneLine(err))
	return exitFailure
}

// oneLine returns the text of err without line breaks, which joined errors have.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func generalHelp() string {
	var b strings.Builder
	b.WriteString(`exn-tun runs TCP/IP over an emulated EXTOLL fabric, through an interface exn0.

Usage:
`)
	for _, c := range commands() {
		if c.about != "" {
			fmt.Fprintf(&b, "  exn-tun %-9s %s\n", c.name, c.about)
		}
	}
	b.WriteString(`  exn-tun COMMAND -h   flags and examples

Examples:
  exn-tun demo
      two nodes in two namespaces: ping, TCP and broadcast over exn0, and what
      the kernel's own veth does in the same run
  exn-tun demo --serve 'iperf3 -s' -- iperf3 -c 10.2.0.2
      any two programs over exn0
  exn-tun up --netns a --addr 10.2.0.1/24
      one node as a daemon; others on this host find it

Without root the demonstration uses a user namespace, where that is allowed.
Results go to standard output, all else to standard error. Exit status: 0 done,
1 failed, 2 wrong usage.
`)
	return b.String()
}

func commandNames() string {
	var names []string
	for _, c := range commands() {
		if c.about != "" {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

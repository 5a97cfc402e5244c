package exnmem

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/memory/pager"
)

// Run is the program: it does what args (without the program's name) say, and returns the exit
// status.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, newRoot(), args, stdout, stderr)
}

func newRoot() *cobra.Command {
	root := command.New("exn-mem", "run programs whose memory is partly on another node",
		"exn-mem runs programs whose memory is partly on another node.")
	root.Annotations = map[string]string{command.EndKey: `Results go to standard output, all else to standard error.`}
	root.AddCommand(newRun())
	return root
}

// options are those of exn-mem run.
type options struct {
	local, remote int
	step          int // how much is borrowed at a time; 0: all
	node          int // the lender; noNode: any
	control       bool
	stats         bool
}

// noNode stands for any node that lends.
const noNode = -1

// largest is the largest size that can be asked for: 16 TiB.
const largest = 1 << 44

func newRun() *cobra.Command {
	o := options{node: noNode}
	c := &cobra.Command{
		Use: "run [flags] [--] PROGRAM [ARGUMENT...]", Short: "run a program",
		Long: `Runs a program, unchanged, whose memory may be larger than its share of this
host's. Pages that it has not used for long go to a node that lends memory
(exn-tun up --lend), and come back when they are touched. The processes that the
program starts share its share.`,
		Example: `exn-mem run --local 512M --remote 4G -- redis-server --save ''
    at most 512 MiB here, and up to 4 GiB on another node
exn-mem run --local 64M --remote 1G --stats -- sort big.txt
    what was moved, at the end`,
		Annotations: map[string]string{command.EndKey: `Paged is anonymous memory in areas of 64 KiB and more, and the heap. It takes
root (or CAP_SYS_PTRACE and vm.unprivileged_userfaultfd=1) and Linux 6.8.
Programs that a library cannot reach (static ones, Go, setuid, musl) are refused.
If a node wants its memory back, what is there moves to another that lends. If
none does, or a node goes, memory that was there ends who touches it with
SIGBUS. Exit status: the program's, once the last process that it has started has
ended; 125 exn-mem itself failed, 126 the program cannot be run, 127 it was not
found.`},
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return cli.Usagef("name a program to run")
			case o.local == 0 || o.remote == 0:
				return cli.Usagef("say with --local and --remote how much memory there is")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return runProgram(c.Context(), o, args, c.ErrOrStderr()) },
	}
	fs := c.Flags()
	fs.SetInterspersed(false) // what follows the program is the program's
	cli.Size(fs, &o.local, "local", pager.Smallest, largest, "`SIZE` the program's share of this host's memory")
	cli.Size(fs, &o.remote, "remote", pager.Smallest, largest, "`SIZE` what it may have on another node")
	cli.Size(fs, &o.step, "step", pager.Smallest, largest, "`SIZE` borrow that much of it at a time, as it is needed, and give it back (all at the start)")
	cli.Number(fs, &o.node, "node", 0, 1<<16-1, "`ID` the only node that may lend (the nearest first, as many as it takes)")
	fs.BoolVar(&o.control, "control", false, "keep that in exn-mem's own memory instead, for comparison")
	fs.BoolVar(&o.stats, "stats", false, "say at the end how many pages were moved")
	return c
}

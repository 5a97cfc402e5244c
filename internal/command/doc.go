// Package command is the frame of the commands that have subcommands: exn-tun, dsbench, exn-go,
// exn-mem, exn-sim. They are trees of cobra commands; this package gives all of them the same help,
// version, completion, man pages, messages and exit statuses.
//
// # Architecture
//
//	root := command.New("exn-tun", about)         version, completion, man, --log-format
//	root.AddCommand(&cobra.Command{...})          one function for each command
//	command.Run(ctx, root, args, stdout, stderr)  the exit status
//
// A command is a function that returns a cobra.Command. It defines its flags, says in Args which
// arguments may follow, and does its work in RunE; an error of package cli sets the exit status
// (cli.Usagef: 2, cli.ExitStatus). Use ends in "[flags]", Short is its line in the list of
// commands, Long says more and ends with a full stop, Example has lines of commands and,
// indented, what they do:
//
//	func newDown(p program) *cobra.Command {
//		var o nodeOptions
//		c := &cobra.Command{
//			Use:     "down [flags]",
//			Short:   "end the nodes of a fabric",
//			Long:    "Ends the nodes of a fabric on this host.",
//			Example: "exn-tun down --node 2",
//			Args:    command.NoArgs,
//			RunE:    func(c *cobra.Command, _ []string) error { return runDown(c.Context(), p, o) },
//		}
//		c.Flags().BoolVar(&o.force, "force", false, "do not ask")
//		return c
//	}
//
// # Concurrency
//
// A tree is for one goroutine.
//
// # Limits
//
// exn-run has no commands, and does without cobra to stay small: it takes its flags and its
// help from package cli directly.
package command

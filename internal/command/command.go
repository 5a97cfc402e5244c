package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"

	"exnet/internal/cli"
	"exnet/internal/version"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New returns the root of a command's tree. long describes the command, in a sentence or more.
func New(name, short, long string) *cobra.Command {
	var showVersion bool
	cobra.EnableCommandSorting = false // the order is that of AddCommand
	root := &cobra.Command{
		Use: name + " COMMAND [flags]", Short: short, Long: long,
		Args:          cobra.ArbitraryArgs, // RunE has a better message
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case showVersion && len(args) == 0:
				return printVersion(c)
			case len(args) > 0:
				return cli.UnknownCommand(args[0], shownNames(c))
			}
			fmt.Fprint(c.ErrOrStderr(), Help(c))
			return cli.ExitStatus(cli.ExitUsage)
		},
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version")
	cli.LogFlags(root.PersistentFlags(), "what a daemon logs")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		_ = root.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(cli.Choices(f), cobra.ShellCompDirectiveNoFileComp)) // the flags are new
	})
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprint(c.OutOrStdout(), Help(c)) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return cli.FlagError(c.Flags(), err) })
	root.SetHelpCommand(newHelp(root))
	return root
}

// Run runs the command that args (without the program's name) name, and returns the exit
// status. Results go to stdout, all else to stderr.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.AddCommand(newVersion(), newCompletion(root), newMan(root))
	eachCommand(root, func(c *cobra.Command) {
		cli.Tidy(c.Flags())
		cli.Tidy(c.PersistentFlags())
		c.InitDefaultHelpFlag()
		c.Flags().Lookup("help").Usage = "explain the command"
	})
	if args == nil {
		args = []string{} // else cobra takes those of the process
	}
	root.InitDefaultHelpCmd()
	// If the command is unknown, that is the error to report, not a flag that is unknown, too; and
	// there is no help.
	unknown := func(c *cobra.Command) error {
		if !c.HasSubCommands() || c.Flags().NArg() == 0 {
			return nil
		}
		return cli.UnknownCommand(c.Flags().Arg(0), shownNames(c))
	}
	flagError, help := root.FlagErrorFunc(), root.HelpFunc()
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return cmp.Or(unknown(c), flagError(c, err)) })
	var noHelp error
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if noHelp = unknown(c); noHelp == nil {
			help(c, args)
		}
	})
	root.SetArgs(args)
	out := cli.NewOutput(stdout)
	root.SetOut(out)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	if errors.Is(err, pflag.ErrHelp) {
		err = nil
	}
	err = cmp.Or(err, noHelp)
	return report(stderr, c.CommandPath(), flagText(c, "log-format"), out.Check(err))
}

// report is cli.Report; with the format "json" it prints an object.
func report(stderr io.Writer, name, format string, err error) int {
	if format != "json" {
		return cli.Report(stderr, name, err, cli.ExitFailure)
	}
	text, status := cli.Outcome(name, err, cli.ExitFailure)
	if text != "" {
		slog.New(slog.NewJSONHandler(stderr, nil)).Log(context.Background(), slog.LevelError, text, "command", name)
	}
	return status
}

// eachCommand calls f for all commands of a tree.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

// NoArgs is for commands that take nothing but flags.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usagef("unexpected argument %q", args[0])
	}
	return nil
}

// Arguments is for commands that take the arguments that Use names after the command. Those in
// brackets may be left out; [flags] is none.
func Arguments(c *cobra.Command, args []string) error {
	want := slices.DeleteFunc(strings.Fields(c.Use)[1:], func(w string) bool { return w == "[flags]" })
	if len(args) > len(want) {
		return NoArgs(c, args[len(want):])
	}
	for _, w := range want[len(args):] {
		if !strings.HasPrefix(w, "[") {
			return cli.Usagef("%s is missing", w)
		}
	}
	return nil
}

// Choose is the RunE of a command that only has subcommands.
func Choose(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.UnknownCommand(args[0], shownNames(c))
	}
	return cli.Usagef("say what to do: %s", strings.Join(shownNames(c), ", "))
}

// shownNames lists the commands of c that its help shows.
func shownNames(c *cobra.Command) (names []string) {
	for _, sub := range shown(c) {
		names = append(names, sub.Name())
	}
	return names
}

func shown(c *cobra.Command) (list []*cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			list = append(list, sub)
		}
	}
	return list
}

// flagText returns the value of a flag; "" without it.
func flagText(c *cobra.Command, name string) string {
	if f := c.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// forPeople writes errors in a log as cli.Report does, without names of packages.
func forPeople(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(cli.Text(err))
	}
	return a
}

// Logger returns the logger that --log-format and --log-level describe.
func Logger(c *cobra.Command) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(flagText(c, "log-level"))) // one of the choices; else info
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: forPeople}
	if flagText(c, "log-format") == "json" {
		return slog.New(slog.NewJSONHandler(c.ErrOrStderr(), o))
	}
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), o))
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version",
		Long: "Prints the version, the commit, as far as the build knows them, and that of Go.",
		Args: NoArgs, RunE: func(c *cobra.Command, _ []string) error { return printVersion(c) },
	}
}

func printVersion(c *cobra.Command) error {
	_, err := fmt.Fprintln(c.OutOrStdout(), c.Root().Name(), version.String(), runtime.Version())
	return err
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "explain a command", Hidden: true,
		Long: "Explains a command, as COMMAND -h does.",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return shownNames(root), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return cli.UnknownCommand(strings.Join(args, " "), shownNames(root))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

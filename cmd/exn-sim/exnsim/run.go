package exnsim

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"exnet/fabric/graph"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/outfile"
	"exnet/study"
)

// Run is the program: it does what args (without the program's name) say, and returns
// the exit status.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, newRoot(), args, stdout, stderr)
}

func newRoot() *cobra.Command {
	root := command.New("exn-sim", "simulate the load of a network's links",
		"exn-sim simulates which links of a network the jobs of a parallel machine load.")
	root.Annotations = map[string]string{command.EndKey: `A network is torus:4x4x4, mesh:4x4, tree:LEAVESxHOSTS/SPINES, fattree:K, a
topology file (.toml) or GraphML.

Results go to standard output and files, all else to standard error. Exit status:
0 done, 1 failed, 2 wrong usage.`}
	root.AddCommand(newRun(), newCheck(), newTopo(), newCredits())
	return root
}

func newRun() *cobra.Command {
	var dir string
	var paths bool
	c := &cobra.Command{
		Use: "run [flags] SCENARIO.toml", Short: "run all combinations of a scenario",
		Long: `Runs all combinations of a scenario, and writes tables, drawings and a page that
compares them, DIR/index.html.`,
		Example: `exn-sim run cg.toml -o out
    where cg.toml says, for instance:
      topology  = "tree:4x5/2"
      cores     = 8
      placement = ["block", "cyclic"]
      router    = ["dmodk", "minmax"]
      [[job]]
      pattern = "cg"
      ranks   = 128`,
		Args: func(_ *cobra.Command, args []string) error {
			if err := wantOneArg("scenario", args); err != nil {
				return err
			}
			if dir == "" {
				return cli.Usagef("name the directory for the results with -o")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Mistakes(runScenario(args[0], dir, paths, c.OutOrStdout(), c.ErrOrStderr()))
		},
	}
	c.Flags().StringVarP(&dir, "output", "o", "", "`DIR` where the results go; created if it is missing")
	c.Flags().BoolVar(&paths, "paths", false, "write the path of every flow, too")
	return c
}

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check [flags] SCENARIO.toml", Short: "check a scenario and all that it names",
		Long:    "Checks a scenario and all that it names, and runs nothing.",
		Example: "exn-sim check cg.toml",
		Args:    func(_ *cobra.Command, args []string) error { return wantOneArg("scenario", args) },
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Mistakes(checkScenario(args[0], c.OutOrStdout()))
		},
	}
}

func newTopo() *cobra.Command {
	out := "-"
	c := &cobra.Command{
		Use: "topo [flags] NETWORK", Short: "write a network as GraphML or SVG",
		Long:    "Writes a network as GraphML, or draws it.",
		Example: "exn-sim topo torus:4x4 -o torus.svg",
		Args: func(_ *cobra.Command, args []string) error {
			if err := wantOneArg("network", args); err != nil {
				return err
			}
			if ext := filepath.Ext(out); out != "-" && ext != ".svg" && ext != ".graphml" {
				return cli.Usagef("%q: name a file that ends in .svg or .graphml", out)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return writeNetwork(args[0], out, c.OutOrStdout()) },
	}
	c.Flags().StringVarP(&out, "output", "o", out, "`FILE` a name that ends in .graphml or .svg; -: GraphML to standard output")
	return c
}

// wantOneArg says what is wrong with the arguments of a command that takes one.
func wantOneArg(what string, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return cli.Usagef("%d arguments: give one %s", len(args), what)
	}
	return nil
}

func checkScenario(path string, stdout io.Writer) error {
	s, err := study.ReadScenario(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: ok, runs: %d\n", path, len(s.Runs()))
	return nil
}

func writeNetwork(name, out string, stdout io.Writer) error {
	g, err := graph.Parse(name, "")
	if err != nil {
		return err
	}
	switch filepath.Ext(out) {
	case ".svg":
		none := make([]uint64, len(g.Channels()))
		return outfile.Write(out, func(w io.Writer) error { return g.WriteSVG(w, none, none, 0) })
	case ".graphml":
		return outfile.Write(out, func(w io.Writer) error { return g.WriteGraphML(w) })
	}
	return g.WriteGraphML(stdout)
}

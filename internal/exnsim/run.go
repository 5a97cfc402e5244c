package exnsim

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"exnet/internal/version"
	"exnet/study"
	"exnet/study/graph"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

const helpText = `exn-sim simulates which links of a network the jobs of a parallel machine load.

Usage:
  exn-sim run SCENARIO.toml -o DIR [--paths]
                            run all combinations, and write tables, drawings and
                            a page that compares them, DIR/index.html; --paths
                            writes the path of every flow, too
  exn-sim check SCENARIO.toml
                            check a scenario and all that it names
  exn-sim topo NETWORK [-o FILE]
                            write a network as GraphML (.graphml) or SVG (.svg)
  exn-sim version           print the version

A network is torus:4x4x4, mesh:4x4, tree:LEAVESxHOSTS/SPINES, fattree:K, a
topology file (.toml) or GraphML.

Example:
  cat > cg.toml <<END
  topology  = "tree:4x5/2"
  cores     = 8
  placement = ["block", "cyclic"]
  router    = ["dmodk", "minmax"]
  [[job]]
  pattern = "cg"
  ranks   = 128
  END
  exn-sim run cg.toml -o out

Results go to standard output and files, all else to standard error. Exit status:
0 done, 1 failed, 2 wrong usage.
`

// usageError says that the arguments are wrong.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// Run is the program: it does what args (without the program's name) say, and returns
// the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, helpText)
		return exitUsage
	}
	var err error
	switch command, rest := args[0], args[1:]; command {
	case "-h", "-help", "--help", "help":
		fmt.Fprint(stdout, helpText)
	case "version", "-version", "--version":
		fmt.Fprintln(stdout, "exn-sim", version.String())
	case "run":
		err = runScenario(rest, stdout, stderr)
	case "check":
		err = checkScenario(rest, stdout)
	case "topo":
		err = writeNetwork(rest, stdout)
	default:
		err = usageError{fmt.Errorf("unknown command %q: choose from run, check, topo, version", command)}
	}
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "exn-sim: %v (see exn-sim -h)\n", err)
		return exitUsage
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "exn-sim: %s\n", strings.TrimSuffix(line, "\n"))
	}
	return exitFailure
}

// options reads flags before and after the one argument that all commands take.
func options(name string, args []string, stdout io.Writer, define func(*flag.FlagSet)) (string, error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	define(fs)
	var given []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(stdout, helpText)
				return "", err
			}
			return "", usageError{fmt.Errorf("%s: %w", name, err)}
		}
		if fs.NArg() == 0 {
			break
		}
		given = append(given, fs.Arg(0))
		args = fs.Args()[1:]
	}
	if len(given) != 1 || given[0] == "" {
		return "", usageError{fmt.Errorf("%s: give one file or network, not %d", name, len(given))}
	}
	return given[0], nil
}

// prepare reads a scenario and makes the configurations of all its runs. The error has
// each mistake once.
func prepare(path string) (*study.Scenario, []study.Setting, error) {
	s, err := study.ReadScenario(path)
	if err != nil {
		return nil, nil, err
	}
	runs := s.Runs()
	var errs []error
	seen := make(map[string]bool)
	for _, r := range runs {
		_, err := r.Prepare()
		if err == nil {
			continue
		}
		for text := range strings.SplitSeq(err.Error(), "\n") {
			if !seen[text] {
				seen[text] = true
				errs = append(errs, errors.New(text))
			}
		}
	}
	return s, runs, errors.Join(errs...)
}

func checkScenario(args []string, stdout io.Writer) error {
	path, err := options("check", args, stdout, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	_, runs, err := prepare(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: ok, runs: %d\n", path, len(runs))
	return nil
}

func writeNetwork(args []string, stdout io.Writer) error {
	out := "-"
	name, err := options("topo", args, stdout, func(fs *flag.FlagSet) { fs.StringVar(&out, "o", out, "") })
	if err != nil {
		return err
	}
	g, err := graph.Parse(name, "")
	if err != nil {
		return err
	}
	switch filepath.Ext(out) {
	case ".svg":
		none := make([]uint64, len(g.Channels()))
		return writeFile(out, func(w io.Writer) error { return g.WriteSVG(w, none, none) })
	case ".graphml":
		return writeFile(out, func(w io.Writer) error { return g.WriteGraphML(w) })
	}
	if out != "-" {
		return usageError{fmt.Errorf("topo: %q: name a file that ends in .svg or .graphml", out)}
	}
	return g.WriteGraphML(stdout)
}

// writeFile writes a file, and leaves none that is not whole.
func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

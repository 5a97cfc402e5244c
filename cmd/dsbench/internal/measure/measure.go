package measure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/tcpbench"
)

// Bounds of the flags --runs and --duration of all measures.
const (
	MaxRuns     = 1000
	MaxDuration = time.Hour
)

// Measure is something that dsbench measures, by a command of its own.
type Measure struct {
	Name     string // of the command
	About    string // what it measures, in a line
	Long     string // the same in full
	Examples string // command lines, each with a line that says what it does

	// Values completes the values of flags, by the flag's name.
	Values map[string]cobra.CompletionFunc

	// Define defines the flags and returns the run that they describe once they are parsed.
	Define func(fs *pflag.FlagSet) Run
}

// Run is what a command line asks of a measure.
type Run interface {
	// Check takes the flags in and says what is wrong with them.
	Check() error

	// Take takes the figures and prints them. It is called after Check.
	Take(ctx context.Context, env Env) error
}

// Env is what surrounds a run.
type Env struct {
	Stdout io.Writer // for figures
	Stderr io.Writer // for what is left out, and why

	// Distance measures that of the two CPUs on which the ends of a path are.
	Distance func() coredist.Distance
}

// Command returns the measure's command. distance becomes that of Env.
func (m Measure) Command(distance func() coredist.Distance) *cobra.Command {
	var r Run
	c := &cobra.Command{
		Use: m.Name + " [flags]", Short: m.About, Long: m.Long, Example: m.Examples,
		Args: func(c *cobra.Command, args []string) error {
			if err := command.NoArgs(c, args); err != nil {
				return err
			}
			if err := r.Check(); err != nil {
				return cli.UsageError{Err: err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return r.Take(c.Context(), Env{Stdout: c.OutOrStdout(), Stderr: c.ErrOrStderr(), Distance: distance})
		},
	}
	r = m.Define(c.Flags())
	command.Values(c, m.Values)
	return c
}

// Choose returns the words of a flag's list, nil if that is empty. All have to be known; an
// error calls an unknown one what it is.
func Choose(flag, what, list string, known []string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	words := strings.Split(list, ",")
	for _, w := range words {
		if !slices.Contains(known, w) {
			return nil, fmt.Errorf("%s: unknown %s %q: choose from %s", flag, what, w, strings.Join(known, ", "))
		}
	}
	return words, nil
}

// CPUs reads the two ends' CPUs, as in "0,1". An error names others, which the flag
// takes, too.
func CPUs(text, others string) (p tcpbench.Placement, err error) {
	client, server, found := strings.Cut(text, ",")
	p.Client, err = strconv.Atoi(client)
	var errServer error
	p.Server, errServer = strconv.Atoi(server)
	if !found || err != nil || errServer != nil {
		return p, fmt.Errorf("%q: write %sthe two ends' CPUs as in 0,1", text, others)
	}
	allowed := tcpbench.AllowedCPUs()
	for _, cpu := range []int{p.Client, p.Server} {
		if !slices.Contains(allowed, cpu) {
			return p, fmt.Errorf("no CPU %d here: choose from %s", cpu, strings.Trim(fmt.Sprint(allowed), "[]"))
		}
	}
	return p, nil
}

// FirstCPUs are the first two that this process may run on, or the only one.
func FirstCPUs() tcpbench.Placement {
	allowed := tcpbench.AllowedCPUs()
	return tcpbench.Placement{Client: allowed[0], Server: allowed[min(1, len(allowed)-1)]}
}

// Command returns the absolute path of a command of exnet: the one that the flag with its name
// names, else the one beside this program, else the one in PATH.
func Command(name, named string) (string, error) {
	if named == "" {
		named = name
		if self, err := os.Executable(); err == nil {
			beside := filepath.Join(filepath.Dir(self), name)
			if _, err := os.Stat(beside); err == nil {
				named = beside
			}
		}
	}
	path, err := exec.LookPath(named)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("--%[1]s: %[2]w: go build ./cmd/%[1]s, and give its path", name, err)
	}
	return path, nil
}

// Prepare has exn-run build its library, if it has not been built yet: no run is to wait for that.
func Prepare(ctx context.Context, exnRun string) error {
	if out, err := exec.CommandContext(ctx, exnRun, "--print-env").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", exnRun, err, bytes.TrimSpace(out))
	}
	return nil
}

// Distance measures how far the CPUs of tcpbench.Apart are from each other, now.
func Distance() coredist.Distance {
	cpus := tcpbench.Apart()
	return coredist.Between(cpus.Client, cpus.Server)
}

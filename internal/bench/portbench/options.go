package portbench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"exnet/internal/bench/tcpbench"
	"exnet/internal/cli"
)

// Options is what the command line of "dsbench ports" asks for.
type Options struct {
	cpuList string
	cpus    [2]int
	runs    int
	rounds  int
	json    bool
}

// Bounds of the options.
const (
	maxRuns   = 1000
	minRounds = 100
	maxRounds = 10_000_000
)

// Define defines the flags of "dsbench ports" and returns what they will say.
func Define(fs *pflag.FlagSet) *Options {
	o := &Options{runs: 5, rounds: 100_000}
	fs.StringVar(&o.cpuList, "cpus", "", "`A,B` CPUs of the two ends (the first two allowed)")
	cli.Number(fs, &o.runs, "runs", 1, maxRuns, "`N` runs (5)")
	cli.Number(fs, &o.rounds, "rounds", minRounds, maxRounds, "`N` round trips of a run (100000)")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line instead of a table")
	return o
}

// Check takes the flags in, and says what is wrong with them.
func (o *Options) Check() error {
	allowed := tcpbench.AllowedCPUs()
	switch {
	case o.cpuList != "":
		parts := strings.Split(o.cpuList, ",")
		if len(parts) != 2 {
			return fmt.Errorf("--cpus: %q: name two, as in 0,1", o.cpuList)
		}
		for i, s := range parts {
			n, err := strconv.Atoi(s)
			if err != nil || !slices.Contains(allowed, n) {
				return fmt.Errorf("--cpus: %q is no CPU of this process: choose from %v", s, allowed)
			}
			o.cpus[i] = n
		}
	case len(allowed) > 1:
		o.cpus = [2]int{allowed[0], allowed[1]}
	default:
		o.cpus = [2]int{allowed[0], allowed[0]}
	}
	return nil
}

// CPUs are those of the two ends.
func (o *Options) CPUs() (a, b int) { return o.cpus[0], o.cpus[1] }

// Speed compares two builds of exnet in one run: "./check.sh speed" runs it.
//
//	speed [-rounds N] BASE HEAD
//
// BASE and HEAD are directories with the commands of two builds. Each round takes each measure
// once with either build, by dsbench with --json, in a network namespace of its own, since the
// broker of one build does not serve programs of another; which build is first changes from round
// to round. The workload of real programs is that of HEAD's dsbench for both, under the exn-run of
// each.
//
// The host moves virtual CPUs: what two CPUs share changes a short message by half. So a pair of
// runs counts only if both found the CPUs at the same distance.
//
// The exit status is 0 whatever the figures are, 1 if something could not be measured, 2 after
// wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	o, err := parseArgs(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(2)
	}
	if err := o.measureBuilds(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	rounds int
	dirs   [2]string // of the base's and the head's commands, absolute
}

func parseArgs(args []string) (o options, err error) {
	fs := flag.NewFlagSet("speed", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "rounds", 5, "how often each measure is taken with each build")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() != 2 {
		return o, fmt.Errorf("two directories with commands are needed, BASE and HEAD, not %d", fs.NArg())
	}
	if o.rounds < 1 || o.rounds > 100 {
		return o, fmt.Errorf("-rounds: %d is not from 1 to 100", o.rounds)
	}
	for i := range o.dirs {
		if o.dirs[i], err = filepath.Abs(fs.Arg(i)); err != nil {
			return o, err
		}
		for _, name := range []string{"dsbench", "exn-run", "exn-tun"} {
			if _, err := os.Stat(filepath.Join(o.dirs[i], name)); err != nil {
				return o, fmt.Errorf("%w: build the commands with GOBIN=%s go install", err, o.dirs[i])
			}
		}
	}
	return o, nil
}

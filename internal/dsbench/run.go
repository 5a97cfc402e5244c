package dsbench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"exnet/internal/dsbench/paths"
	"exnet/internal/dsbench/programs"
	"exnet/internal/dsbench/result"
	"exnet/internal/netns"
	"exnet/internal/tcpbench"
	"exnet/internal/version"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// Run is the program: it does what args (without the program's name) say,
// writes results to stdout and all else to stderr, and returns the exit status.
// When ctx is cancelled it prints what was measured, cleans up and returns.
//
// Run starts the program itself again (/proc/self/exe) with a hidden command as
// the single argument, and without privileges with its own arguments (os.Args)
// in a user namespace; in both cases main must call Run again.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, generalHelp())
		return exitUsage
	}
	switch args[0] {
	case "-h", "--help", "-help", "help":
		fmt.Fprint(stdout, generalHelp())
		return exitOK
	case "-version", "--version", "version":
		fmt.Fprintln(stdout, "dsbench", version.String(), runtime.Version())
		return exitOK
	}
	if work := paths.WorkerOf(args[0]); work != nil {
		if err := work(os.Stdin, stdout); err != nil {
			return fail(stderr, args[0], err)
		}
		return exitOK
	}
	switch args[0] {
	case "report":
		return runReport(ctx, args[1:], stdout, stderr)
	case "serve":
		return runServe(ctx, args[1:], stdout, stderr)
	case "tune":
		return runTune(ctx, args[1:], stdout, stderr)
	case "compare":
		return runCompare(args[1:], stdout, stderr)
	case "programs":
		return runPrograms(ctx, args[1:], stdout, stderr)
	}
	m, ok := measureOf(args[0])
	if !ok {
		fmt.Fprintf(stderr, "dsbench: unknown measure %q: choose %s, or see dsbench -h\n", args[0], measureNames())
		return exitUsage
	}
	o, err := parseOptions(m, args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, measureHelp(m))
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "dsbench %s: %v (see dsbench %s -h)\n", m.name, err, m.name)
		return exitUsage
	}
	return run(ctx, o, stdout, stderr)
}

// run measures what the options say.
func run(ctx context.Context, o options, stdout, stderr io.Writer) int {
	if reason := needsPrivileges(o); reason != "" && !netns.Privileged() {
		status, err := netns.ReexecInUserNS()
		if err != nil {
			return fail(stderr, o.measure.name, fmt.Errorf("%s: %w", reason, err))
		}
		return status
	}
	if o.controlAdded {
		fmt.Fprintf(stderr, "dsbench %s: measuring %s too, as the control\n", o.measure.name, o.control)
	}
	m := result.ThisMachine(time.Now())
	var out sink = &tableSink{w: stdout, o: o, m: m}
	if o.json {
		out = jsonSink{stdout}
	}
	const perRun = 100 * time.Millisecond // to start the workers
	p := newProgress(stderr, o.measurements(), o.warmup+o.duration+perRun)
	err := runAll(ctx, o, m, out, p)
	p.clear()
	if err != nil {
		return fail(stderr, o.measure.name, err)
	}
	return exitOK
}

// runPrograms is "dsbench programs".
func runPrograms(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := programs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, programs.Help())
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "dsbench programs: %v (see dsbench programs -h)\n", err)
		return exitUsage
	}
	if err := programs.Run(ctx, o, result.ThisMachine(time.Now()), distance(), stdout, stderr); err != nil {
		return fail(stderr, "programs", err)
	}
	return exitOK
}

// needsPrivileges returns what of the options needs privileges, "" if nothing.
func needsPrivileges(o options) string {
	for _, kind := range o.paths {
		if kind.Privileged {
			return "path " + kind.Name
		}
	}
	// In a namespace of its own, dsbench may choose any that the kernel has.
	if o.hasPath("lo") && !tcpbench.CongestionAllowed(o.congestion) {
		return "congestion control " + o.congestion
	}
	return ""
}

// fail prints an error in one line.
func fail(stderr io.Writer, what string, err error) int {
	fmt.Fprintf(stderr, "dsbench %s: %s\n", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	return exitFailure
}

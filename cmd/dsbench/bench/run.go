package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/netns"
	"exnet/internal/tcpbench"
)

// Run is the program: it does what args (without the program's name) say,
// writes results to stdout and all else to stderr, and returns the exit status.
// When ctx is cancelled it prints what was measured, cleans up and returns.
//
// Run starts the program itself again (/proc/self/exe) with a hidden command as
// the single argument, and without privileges with its own arguments (os.Args)
// in a user namespace; in both cases main must call Run again.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 {
		if work := paths.WorkerOf(args[0]); work != nil {
			return cli.Report(stderr, "dsbench "+args[0], work(os.Stdin, stdout), cli.ExitFailure)
		}
	}
	return command.Run(ctx, newRoot(), args, stdout, stderr)
}

// measurePaths measures what the options say, on the paths that can be had.
func measurePaths(ctx context.Context, o options, stdout, stderr io.Writer) error {
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "dsbench %s: %s\n", o.measure.name, fmt.Sprintf(format, args...))
	}
	failed := false
	if reason := needsPrivileges(o); reason != "" && !netns.Privileged() {
		status, err := netns.ReexecInUserNS()
		if err == nil {
			return cli.ExitStatus(status)
		}
		if failed, err = o.leaveOutPrivileged(reason, err, say); err != nil {
			return err
		}
	}
	if o.controlAdded && o.hasPath(o.control) {
		say("measuring %s too, as the control", o.control)
	}
	m := result.ThisMachine(time.Now())
	out := &printer{w: stdout, o: o, m: m}
	const perRun = 100 * time.Millisecond // to start the workers
	p := newProgress(stderr, o.countMeasurements(), o.warmup+o.duration+perRun)
	o.tolerate = func(_ string, err error) {
		failed = true
		p.clearLine()
		say("%s", cli.Text(err))
	}
	err := errors.Join(runAll(ctx, o, m, out.printRows, p), out.finishTable())
	p.clearLine()
	if err == nil && failed && (o.named || out.n == 0) {
		err = cli.ExitStatus(cli.ExitFailure) // what is missing has been said
	}
	return err
}

// leaveOutPrivileged leaves out what needs privileges. reason and cause say why there are none.
// left says whether paths were left out. It fails if nothing remains.
func (o *options) leaveOutPrivileged(reason string, cause error, say func(string, ...any)) (left bool, err error) {
	n := len(o.paths)
	o.paths = slices.DeleteFunc(o.paths, func(k paths.Kind) bool { return k.Privileged })
	if left = len(o.paths) < n; left {
		say("without the paths that need privileges: %s", cli.Text(cause))
	}
	if o.anyTCP && len(o.paths) > 0 && needsPrivileges(*o) != "" {
		if system := tcpbench.SystemCongestion(); system != "" { // everybody may choose it
			say("TCP with %s, the system's congestion control, and not %s, which takes privileges", system, o.congestion)
			o.congestion = system
		}
	}
	if len(o.paths) == 0 || needsPrivileges(*o) != "" {
		return left, fmt.Errorf("%s: %w", reason, cause)
	}
	return left, nil
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

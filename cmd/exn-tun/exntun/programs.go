package exntun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/child"
	"exnet/internal/cli"
	"exnet/node"

	"golang.org/x/sys/unix"
)

// How long programs may take to end after a signal.
const (
	commandGrace = 3 * time.Second
	serverGrace  = time.Second
)

// runPrograms runs the user's command or shell, and its servers.
func runPrograms(ctx context.Context, p program, o demoOptions, rec *recording) (err error) {
	if !o.shell {
		// Before there are nodes, and before the file of --output is written.
		if err := startError(o.command[0]); err != nil {
			return startFailed(p, err)
		}
	}
	// Caught before there are nodes: an uncaught signal would end this process without cleaning
	// up.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, programSignals()...)
	defer signal.Stop(signals)
	family, err := adoptOrphans()
	if err != nil {
		return err
	}
	defer family.stopAdopting()

	l, err := lab.New(o.clusterConfig(), o.fair)
	if err != nil {
		return err
	}
	defer func() {
		// An exit status must not hide this error; any other error is enough.
		var exit cli.ExitStatus
		if closed := l.Close(); closed != nil && (err == nil || errors.As(err, &exit)) {
			err = closed
		}
	}()
	if err := rec.startCapture(l); err != nil {
		return err
	}
	defer func() {
		detail, stopped := rec.stopCapture()
		if stopped != nil {
			detail += ": " + cli.Text(stopped)
		}
		if detail != "" {
			p.printProgress("captured %s", cli.Printable(detail)) // the file's name may be anything
		}
	}()
	ctx, cancel := l.Context(ctx)
	defer cancel()

	s := session{program: p, o: o, lab: l, family: family}
	ran := false
	defer func() {
		// What the programs leave behind ends before exn0 does.
		s.stopServers()
		if n := family.endChildren(); n > 0 {
			s.printProgress("ended what was left behind (processes: %d)", n)
		}
		if ran {
			s.printSummary()
		}
	}()
	if err := s.prepareServers(ctx, signals); err != nil {
		return err
	}
	ran = true
	return s.runCommand(ctx, signals)
}

// programSignals returns the signals that the user's programs get.
func programSignals() []os.Signal {
	return []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP}
}

// prepareServers starts the servers. Until the command runs, any signal ends it all.
func (s *session) prepareServers(ctx context.Context, signals <-chan os.Signal) error {
	ctx, stop := signal.NotifyContext(ctx, programSignals()...)
	defer stop()
	err := s.startServers(ctx)
	select {
	case <-signals:
		return errInterrupted
	default:
		return err
	}
}

// session runs the user's programs in a lab.
type session struct {
	program
	o       demoOptions
	lab     *lab.Lab
	family  *orphans
	servers []*server
}

// commandNode and serverNode are the nodes, from 0, of the command and of the servers.
func (s *session) commandNode() int { return s.o.in - 1 }
func (s *session) serverNode() int  { return s.o.in % s.o.nodes }

// runCommand runs the command or shell to its end. Its exit status is the result.
func (s *session) runCommand(ctx context.Context, signals <-chan os.Signal) error {
	var cmd *exec.Cmd
	if s.o.shell {
		var err error
		if cmd, err = s.userShell(); err != nil {
			return err
		}
		s.printBanner()
	} else {
		cmd = exec.Command(s.o.command[0], s.o.command[1:]...)
	}
	cmd.Env = append(os.Environ(), append(cmd.Env, s.nodeEnviron(s.commandNode())...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, cli.Unwrap(s.stdout), s.stderr
	// Where the output is not a file, its copying ends with the command.
	cmd.WaitDelay = commandGrace
	err := s.lab.Cluster.Namespace(s.commandNode()).Start(cmd)
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if err != nil {
		return startFailed(s.program, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return s.waitCommand(ctx, cmd, done, signals)
}

// startError returns why a program cannot be started; nil: nothing is known that speaks against it.
func startError(name string) error {
	_, err := exec.LookPath(name)
	if e, ok := errors.AsType[*exec.Error](err); ok && strings.Contains(name, "/") {
		cause := e.Err
		if looked, ok := errors.AsType[*fs.PathError](cause); ok { // it has the name, too
			cause = looked.Err
		}
		return &fs.PathError{Op: "fork/exec", Path: name, Err: cause} // as the kernel's error, without quotes
	}
	return err
}

// startFailed says why a command was not started, and returns the status of a shell for it.
func startFailed(p program, err error) error {
	p.printProgress("%s", cli.Text(child.StartError(err))) // the text names the command
	return cli.ExitStatus(child.StartStatus(err))
}

// ownProcesses returns the processes that the session started itself: cmd and the
// servers.
func (s *session) ownProcesses(cmd *exec.Cmd) []int {
	pids := []int{cmd.Process.Pid}
	for _, srv := range s.servers {
		pids = append(pids, srv.cmd.Process.Pid)
	}
	return pids
}

// waitCommand waits for the command, and passes on to it the signals that exn-tun gets.
func (s *session) waitCommand(ctx context.Context, cmd *exec.Cmd, done <-chan error, signals <-chan os.Signal) error {
	// A shell may run for long: what it leaves behind must not stay as zombies.
	exited := make(chan os.Signal, 1)
	signal.Notify(exited, unix.SIGCHLD)
	defer signal.Stop(exited)
	ended := ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case <-exited:
			s.family.reapChildren(s.ownProcesses(cmd))
		case sig := <-signals:
			// A terminal's keys signal the command, too, and the command decides what they
			// mean.
			if (sig == unix.SIGINT || sig == unix.SIGQUIT) && child.InForeground() {
				continue
			}
			_ = cmd.Process.Signal(sig) // fails only when it has just ended
			if kill == nil && sig != unix.SIGINT {
				kill = time.After(commandGrace)
			}
		case <-ended:
			ended = nil
			_ = cmd.Process.Signal(unix.SIGTERM)
			kill = time.After(commandGrace)
		case <-kill:
			_ = cmd.Process.Kill()
		case err := <-done:
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause // exn0 is gone
			}
			if cmd.ProcessState == nil {
				return err
			}
			if status := child.ShellStatus(cmd.ProcessState); status != 0 {
				return cli.ExitStatus(status)
			}
			return nil
		}
	}
}

// printSummary says on standard error what went over the fabric: standard output is
// the command's.
func (s *session) printSummary() {
	s.printProgress("sent %v", s.lab.SinceStart())
	if s.o.stats {
		printCounters(s.stderr, describeNodes(s.lab), countersOfLoop(s.lab))
	}
}

// printBanner prints which node a shell is on, and how to reach the others.
func (s *session) printBanner() {
	fmt.Fprintf(s.stderr, "%d nodes on one fabric; this shell is on node %d. \"exit\" ends it all.\n", s.o.nodes, s.o.in)
	for i := range min(s.o.nodes, maxNodeLines) {
		fmt.Fprintf(s.stderr, "  node %-3d  %-11v  %-15v  %s\n", 1+i, node.Addr4(i).Addr(), node.Addr6(i).Addr(),
			choose(i == s.commandNode(), "(here)", fmt.Sprintf("nsenter --net=$EXN_NS%d COMMAND", 1+i)))
	}
	if s.o.nodes > maxNodeLines {
		fmt.Fprintf(s.stderr, "  and %d more\n", s.o.nodes-maxNodeLines)
	}
}

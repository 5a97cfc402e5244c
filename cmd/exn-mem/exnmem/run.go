package exnmem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/exn-run/exnrun"
	"exnet/internal/child"
	"exnet/internal/cli"
	"exnet/internal/tempdir"
	"exnet/memory/pager"
	"exnet/memory/pager/preload"
)

// Exit statuses of exn-mem itself.
const exitFailure = 125

// runProgram runs the program args.
func runProgram(ctx context.Context, o options, args []string, stderr io.Writer) error {
	say := func(text string) { fmt.Fprintln(stderr, "exn-mem:", cli.Printable(text)) }
	fail := func(err error, status int) error {
		say(cli.Text(err))
		return cli.ExitStatus(status)
	}
	program, err := exnrun.FindProgram(args[0])
	if err != nil {
		return fail(child.StartError(err), child.StartStatus(err))
	}
	if reason := refusal(program); reason != "" {
		return fail(errors.New(reason), exitFailure)
	}
	if err := pager.Check(); err != nil {
		return fail(err, exitFailure)
	}
	library, err := preload.Build(ctx)
	if err != nil {
		return fail(err, exitFailure)
	}
	store, err := openStore(ctx, o)
	if err != nil {
		return fail(err, exitFailure)
	}
	defer store.Close()
	dir, err := tempdir.New("exn-mem")
	if err != nil {
		return fail(err, exitFailure)
	}
	defer tempdir.Remove(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // a program may become another user's
		return fail(err, exitFailure)
	}
	s := &session{say: say, stats: o.stats}
	g, err := pager.New(pager.Config{
		Local: int64(o.local), Store: store, Size: int64(o.remote),
		Socket: filepath.Join(dir, "pager"), Say: say, Full: s.endForMemory,
	})
	if err != nil {
		return fail(err, exitFailure)
	}
	s.pager = g
	if l, ok := store.(lenders); ok && o.step > 0 {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() { defer close(stopped); l.followLoad(int64(o.local), g, stop) }()
		defer func() { close(stop); <-stopped }()
	}
	env := environment(os.Environ(), library, filepath.Join(dir, "pager"))
	status, err := s.runProgram(program, args, env)
	if err != nil {
		return fail(err, child.StartStatus(err))
	}
	return status
}

// environment returns the program's environment.
func environment(environ []string, library, socket string) []string {
	const list = "LD_PRELOAD"
	var env []string
	before := ""
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case list:
			before = value
		case "EXNET_PAGER":
		default:
			env = append(env, v)
		}
	}
	return append(env, list+"="+strings.TrimSuffix(library+":"+before, ":"), "EXNET_PAGER="+socket)
}

// refusal says why the memory of a program cannot be paged, "" if it can.
func refusal(p exnrun.Program) string {
	name := filepath.Base(p.Path)
	if p.Script != "" {
		name += " (run by " + filepath.Base(p.Script) + ")"
	}
	switch p.Kind {
	case exnrun.Go, exnrun.GoPackage:
		return name + " is a Go program, which a library does not reach: its memory cannot be paged"
	case exnrun.Packed:
		return name + " is packed (UPX), which hides how it is linked: unpack it (upx -d)"
	case exnrun.Static:
		return name + " is statically linked, so a library does not reach it: link it dynamically"
	case exnrun.Setuid:
		return name + " runs with the rights of another user (setuid, setgid or capabilities), for which the system drops LD_PRELOAD: run it as that user"
	case exnrun.Foreign:
		return name + " is for another architecture"
	case exnrun.Musl:
		return name + " is linked with musl: the library is for glibc"
	}
	return ""
}

// session is a program that runs under its pager.
type session struct {
	pager *pager.Pager
	say   func(string)
	stats bool
	kill  func() // ends the program
}

// endForMemory ends the program, which wants more memory than there is anywhere.
func (s *session) endForMemory() {
	s.say("the program wants more memory than --local and --remote give: it is killed")
	s.kill()
}

// runProgram runs the program until it and all its processes have ended, and returns its exit
// status as an error of package cli.
func (s *session) runProgram(p exnrun.Program, argv, env []string) (status, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH)
	defer signal.Stop(signals)
	cmd := &exec.Cmd{Path: p.Path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	served := make(chan error, 1)
	s.kill = func() { _ = cmd.Process.Kill() }
	// Huge pages would have to be split before a part of one can leave.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("huge pages cannot be turned off: %w", err)
	}
	if err := cmd.Start(); err != nil {
		go func() { served <- s.pager.Run() }()
		s.pager.Finish()
		return nil, errors.Join(fmt.Errorf("%s: %w", p.Path, err), <-served)
	}
	go func() { served <- s.pager.Run() }()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if fromKeys(sig) && child.InForeground() {
				continue // it has reached the program already
			}
			_ = cmd.Process.Signal(sig)
		case err := <-served:
			s.kill()
			return nil, errors.Join(errors.New("the pager has failed, and the program was killed"), err, <-ended)
		case <-ended:
			return s.waitLast(cmd.ProcessState, served)
		}
	}
}

// waitLast waits for the last process, and says what is to be said.
func (s *session) waitLast(state *os.ProcessState, served <-chan error) (status, err error) {
	if _, ever := s.pager.Processes(); ever == 0 {
		s.say("no process of the program has said hello: nothing was paged")
	}
	s.pager.Finish()
	if err := <-served; err != nil {
		return nil, err
	}
	if s.stats {
		c := s.pager.Counts()
		s.say(fmt.Sprintf("%d faults: %d pages filled, %d fetched, %d more ahead, %d returned from standby; %d writes to clean pages; %d moved out, %d saved, %d stuck; at most %d pages here",
			c.Faults, c.Filled, c.Fetched, c.Ahead, c.Returned, c.Writes, c.Moved, c.Saved, c.Stuck, c.Most))
	}
	ws, ok := state.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		switch sig := ws.Signal(); sig {
		case unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE:
			signal.Reset(sig)
			_ = unix.Kill(os.Getpid(), sig)
			time.Sleep(time.Second) // until it arrives
		}
	}
	return cli.ExitStatus(child.ShellStatus(state)), nil
}

// fromKeys reports whether a terminal sends the signal.
func fromKeys(sig os.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH
}

package exnrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/internal/child"
	"exnet/internal/cli"
	"exnet/internal/outfile"

	"golang.org/x/sys/unix"
)

// lookTime is how often --verbose looks for connections, and the others for those
// whose entry might be used anew.
const lookTime = 100 * time.Millisecond

// preferLooks is after how many looks root's broker is looked for, if it is not used yet.
const preferLooks = 10

// runAsChild runs the program as a child, watches its connections, and says what was
// chosen for them.
func runAsChild(o options, s settings, p Program, upstream string, m messages) error {
	// Caught before there is anything to remove. One that comes early is the program's, too.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH)
	defer signal.Stop(signals)
	// A write finds that nobody reads any more. Not ignored: the program would ignore it, too.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	defer signal.Stop(broken)
	var report *outfile.File
	if o.report != "" {
		f, err := outfile.Create(o.report)
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		defer f.Discard() // after Commit it does nothing
		report = f
		// Until then it is empty, if there was none: somebody may watch a service.
		if f, err := os.OpenFile(o.report, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
			f.Close()
		}
	}
	w := &watch{}
	defer w.close()
	add := w.addFile
	var prof *profiler
	if o.profile != "" {
		var err error
		if prof, err = newProfiler(o.profile); err != nil {
			return err
		}
		add = func(program string, pid int, f *os.File) {
			prof.notePID(pid)
			w.addFile(program, pid, f)
		}
	}
	t, err := newTap(upstream, add)
	if err != nil {
		return err
	}
	s.tap = t.path()
	vars, err := s.environVariables(os.Getenv)
	if err != nil {
		return errors.Join(err, t.close())
	}
	var live func(connstats.Connection)
	if o.verbose {
		live = func(c connstats.Connection) { fmt.Fprintln(m.stderr, "exn-run:", explain.Line(&c)) }
	}
	looks := 0
	program, argv := p.Path, o.argv
	if i := newInjection(p, true, m); i.library != "" {
		program, argv = i.childCommand(program, argv, m)
	}
	state, err := runChild(program, argv, withVariables(os.Environ(), vars), signals, func() {
		w.readAll(live)
		if looks++; looks%preferLooks == 0 {
			t.preferRoot()
		}
	})
	t.waitSeen()
	if err = errors.Join(err, t.close()); err != nil {
		return err
	}
	w.readAll(live)
	if o.explain || o.stats {
		for _, c := range w.listConnections() {
			fmt.Fprintf(m.stderr, "exn-run: %s%s\n", explain.Line(c), explain.Amounts(c))
			if d := formatCounters(c); o.stats && d != "" {
				fmt.Fprintf(m.stderr, "exn-run:     %s\n", d)
			}
		}
	}
	if o.explain || o.stats || o.verbose {
		for _, text := range w.missedPrograms() {
			fmt.Fprintln(m.stderr, "exn-run:", text)
		}
		fmt.Fprintln(m.stderr, "exn-run:", summaryLine(w.listConnections(), w.lost, w.countProcesses()))
	}
	if report != nil {
		if err := errors.Join(writeReport(report, w.listConnections()), report.Commit()); err != nil {
			return err
		}
	}
	if prof != nil {
		if err := prof.addSeen(o, w); err != nil {
			return err
		}
	}
	return endAs(state)
}

// runChild runs a program to its end, and calls look now and then meanwhile. What signals this
// process gets go to the program; those from the terminal's keys reach it already, as it is in the
// same process group.
func runChild(path string, argv, environ []string, signals <-chan os.Signal, look func()) (*os.ProcessState, error) {
	start := func() *exec.Cmd {
		return &exec.Cmd{Path: path, Args: argv, Env: environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	}
	cmd := start()
	err := cmd.Start()
	if errors.Is(err, unix.ENOEXEC) {
		path, argv = shellScript(path, argv)
		cmd = start()
		err = cmd.Start()
	}
	if err != nil {
		return nil, programError{child.StartError(err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case sig := <-signals:
			if fromKeys(sig) && child.InForeground() {
				continue
			}
			_ = cmd.Process.Signal(sig) // fails only when it has just ended
		case <-tick.C:
			look()
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return nil, err
			}
			return cmd.ProcessState, nil
		}
	}
}

// fromKeys reports whether a terminal sends the signal.
func fromKeys(sig os.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH
}

// endAs makes this process end as the program did.
func endAs(state *os.ProcessState) error {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return cli.ExitStatus(state.ExitCode())
	}
	switch sig := ws.Signal(); sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGKILL, unix.SIGPIPE:
		signal.Reset(sig)
		_ = unix.Kill(os.Getpid(), sig) // it is this process's own
		time.Sleep(time.Second)         // until it arrives
	}
	return cli.ExitStatus(128 + int(ws.Signal()))
}

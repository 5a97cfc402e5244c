package exnrun

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/inject"
	"exnet/directsockets/preload"
	"exnet/internal/child"
	"exnet/internal/cli"
	"exnet/internal/rules"
	"exnet/internal/version"
	"exnet/node/control"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Run is the program: it does what args (without the program's name) say. Where
// it can it becomes the program that it is to run and does not return; else it
// returns the exit status. Results go to stdout, all else to stderr.
//
// Run starts the program itself again (/proc/self/exe) with the single argument "broker" or
// "serve-broker", with "trace" or "--become" and more, and to enter the namespace of a node with
// its own arguments (os.Args). Call it on the main goroutine.
func Run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 {
		switch args[0] {
		case brokerCommand:
			return messages{stderr: stderr}.exitStatus(detachBroker())
		case serveCommand:
			return messages{stderr: stderr}.exitStatus(runBroker())
		case "version", "help": // programs of these names run after --
			args = []string{"--" + args[0]}
		}
	}
	if len(args) > 1 {
		m := messages{stderr: stderr}
		switch args[0] {
		case traceCommand:
			runReport(args[1:], m)
			return 0
		case becomeCommand:
			return m.exitStatus(runBecome(args[1:], m))
		}
	}
	o, fs, err := parseOptions(args)
	if len(args) == 0 {
		fmt.Fprint(stderr, describeCommand(fs).Help())
		return exitFailure
	}
	out, m := cli.NewOutput(stdout), toSay(fs, stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(out, describeCommand(fs).Help())
		err = nil
	case err != nil:
	case o.version:
		fmt.Fprintln(out, "exn-run", version.String(), runtime.Version())
	case o.man:
		fmt.Fprint(out, describeCommand(fs).Man())
	case o.completion != "":
		var text string
		text, err = describeCommand(fs).Completion(o.completion)
		fmt.Fprint(out, text)
	case o.checkRules != "":
		err = checkRules(out, o.checkRules)
	default:
		err = startProgram(o, out, m)
	}
	return m.exitStatus(out.Check(err))
}

func checkRules(stdout io.Writer, path string) error {
	list, err := readRules("--check-rules", path)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s is good: %d rules\n", path, len(list))
	return nil
}

// readRules reads the file that a flag names.
func readRules(flag, path string) (rules.Rules, error) {
	list, err := rules.Read(path)
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return list, cli.Mistakes(err)
}

// runLibfabric runs the program of --libfabric; nil: package ports was deleted (housetest's
// TestParts).
var runLibfabric func(options, messages) error

// startProgram prepares what the options say and starts the program.
func startProgram(o options, stdout io.Writer, m messages) error {
	if o.libfabric {
		if err := reserveRoutes(o, m); err != nil {
			return err
		}
		return runLibfabric(o, m)
	}
	_, inherits := os.LookupEnv(envLoopback)
	launcher, err := os.Executable()
	if err != nil || o.printEnv || !inject.Supported {
		launcher = "" // static programs stay on TCP
	}
	s := settings{launcher: launcher, loopback: o.loopback, inherits: inherits, explain: o.staysAround()}
	for _, text := range missetVariables(os.Getenv) {
		m.warnUser("%s", cli.Printable(text))
	}
	if o.rules != "" {
		list, err := readRules("--rules", o.rules)
		if err != nil {
			return err
		}
		s.rules, s.hasRules = list, true
	}
	if o.node != "" {
		if err := o.retryWhileWaiting(func() error { return enterNode(o) }); err != nil {
			return err
		}
	}
	if err := reserveRoutes(o, m); err != nil {
		return err
	}
	name := "/bin/sh" // what reads the variables
	if !o.printEnv {
		name = o.argv[0]
	}
	p, err := FindProgram(name)
	if !o.printEnv {
		if err != nil {
			return programError{child.StartError(err)}
		}
		if reason := p.Reason(); reason != "" && !p.Kind.Injects() {
			m.warnUser("%s", reason)
		}
	}
	if s.library, err = libraryPath(o.library, p, m.warnUser); err != nil {
		return err
	}
	var path string
	err = o.retryWhileWaiting(func() (err error) {
		path, err = prepareBroker(o.loopback)
		return err
	})
	if errors.Is(err, errLater) && o.staysAround() && s.library != "" {
		asked, release, failed := askAgent(s.library)
		if failed != nil {
			return failed
		}
		defer release() // the process ends then
		if asked != "" {
			path, err = asked, nil
		}
	}
	switch {
	case err != nil && o.wait:
		return err
	case errors.Is(err, errLater):
		m.warnUser("%s", cli.Text(err))
	case err != nil:
		m.warnUser("%s: connections stay on TCP", cli.Text(err))
	}
	if o.staysAround() {
		return runAsChild(o, s, p, path, m)
	}
	vars, err := s.environVariables(os.Getenv)
	if err != nil {
		return err
	}
	if o.printEnv {
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			fmt.Fprintf(stdout, "export %s=%s\n", name, shellWord(value))
		}
		return nil
	}
	return newInjection(p, false, m).becomeInjected(p, o.argv, withVariables(os.Environ(), vars), m)
}

// waitTime bounds how long --wait waits.
const waitTime = 30 * time.Second

// retryWhileWaiting does f: with --wait again while what it needs is not there yet, until waitTime
// is over.
func (o options) retryWhileWaiting(f func() error) error {
	for deadline := time.Now().Add(waitTime); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		missing := errors.Is(err, control.ErrNoNode) || errors.Is(err, client.ErrNoBroker) || errors.Is(err, fs.ErrNotExist)
		if !missing || !o.wait || time.Now().After(deadline) {
			return err
		}
	}
}

// execProgram replaces this process by the program. A file in no format that the kernel knows is a
// script for the shell, as in execvp(3).
func execProgram(path string, argv, environ []string) error {
	err := syscall.Exec(path, argv, environ)
	if errors.Is(err, unix.ENOEXEC) {
		path, argv = shellScript(path, argv)
		err = syscall.Exec(path, argv, environ)
	}
	return programError{child.StartError(&fs.PathError{Op: "fork/exec", Path: path, Err: err})}
}

func shellScript(path string, argv []string) (string, []string) {
	return "/bin/sh", append([]string{"/bin/sh", path}, argv[1:]...)
}

// libraryPath returns the absolute path of the library for a program: the one that was asked
// for, or the one of this exn-run, which is built if it has not been yet; "": it cannot bear one.
func libraryPath(asked string, p Program, say func(string, ...any)) (string, error) {
	musl := p.Kind == Musl
	if !p.Kind.Preloads() {
		return "", nil
	}
	if asked == "" {
		path, err := buildLibrary(musl, say)
		if errors.Is(err, preload.ErrMusl) {
			say("%s is linked with musl and stays on TCP: %s", p.name(), cli.Text(err))
			return "", nil
		}
		if err != nil && !p.Kind.Loads() {
			return "", nil // only programs that it starts would have it
		}
		return path, err
	}
	path, err := filepath.Abs(asked)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("--library: %w", err)
	}
	if k := kindOf(path); k != Dynamic && k != Static { // a library has no PT_INTERP
		return "", fmt.Errorf("library %s: it is not a shared library for this machine", asked)
	}
	if p.Kind != Unknown && preload.ForMusl(path) != musl {
		return "", fmt.Errorf("library %s: %s has another C library than it", asked, p.name())
	}
	return path, nil
}

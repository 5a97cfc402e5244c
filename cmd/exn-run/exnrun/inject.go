package exnrun

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"exnet/directsockets/inject"
	"exnet/internal/cbuild"
	"exnet/internal/child"
	"exnet/internal/cli"

	"golang.org/x/sys/unix"
)

// traceCommand makes exn-run say how the tracer has fared that puts the library into a static
// program: the format of messages, the program's name, the library, a step and an errno follow.
// becomeCommand makes it become such a program (the library's hooks/launch.c does so, too): what
// follows is the library, the format of messages, the program's name, its file and its arguments.
const (
	traceCommand  = "trace"
	becomeCommand = "--become"
)

// injection is what is needed to put the library into the program that starts.
type injection struct {
	library string // "": nothing is injected
	name    string // of the program, for messages
	explain bool
}

// newInjection returns what is needed for a program, nothing if it needs none or there is no
// library: it says so then.
func newInjection(p Program, explain bool, m messages) injection {
	if !p.Injects() {
		return injection{}
	}
	path, err := buildFree(m.warnUser)
	if err != nil {
		m.warnUser("%s (%s)", p.Reason(), cli.Text(err))
		return injection{}
	}
	return injection{path, p.name(), explain}
}

// encodeMessages returns how messages are to be, a letter for each setting.
func (i injection) encodeMessages(m messages) string {
	var format strings.Builder
	for letter, is := range map[rune]bool{'j': m.json, 'q': m.quiet, 'e': i.explain} {
		if is {
			format.WriteRune(letter)
		}
	}
	return format.String()
}

// decodeMessages reads what encodeMessages has written.
func decodeMessages(format string, m messages) (explain bool, _ messages) {
	m.json, m.quiet = strings.Contains(format, "j"), strings.Contains(format, "q")
	return strings.Contains(format, "e"), m
}

// becomeInjected replaces this process by the program, with the library in it.
func (i injection) becomeInjected(p Program, argv, environ []string, m messages) error {
	if i.library != "" {
		err := inject.Launch(inject.Config{
			File: p.Image, Library: i.library, Dir: cbuild.Place(), Explain: i.explain,
			Report: []string{"exn-run", traceCommand, i.encodeMessages(m), i.name, i.library},
		})
		if err != nil {
			m.warnUser("%s", staysPlain(i.name, err))
		}
	}
	return execProgram(p.Path, argv, environ)
}

// childCommand returns the command of a child that becomes the program with the library in it.
func (i injection) childCommand(path string, argv []string, m messages) (string, []string) {
	return "/proc/self/exe", append([]string{"exn-run", becomeCommand, i.library, i.encodeMessages(m), i.name, path}, argv...)
}

// runBecome is "exn-run --become".
func runBecome(args []string, m messages) error {
	const library, format, name, path, argv = 0, 1, 2, 3, 4
	if len(args) <= argv {
		return cli.Usagef("%s is exn-run's own", becomeCommand)
	}
	explain, m := decodeMessages(args[format], m)
	p, err := FindProgram(args[path])
	if err != nil {
		return programError{child.StartError(err)}
	}
	i := injection{args[library], filepath.Base(args[name]), explain}
	if !p.Injects() {
		i.library = ""
	} else if i.library == "" {
		i.library, _ = buildFree(m.warnUser) // "": it stays plain
	}
	return i.becomeInjected(p, args[argv:], os.Environ(), m)
}

// runReport is "exn-run trace".
func runReport(args []string, m messages) {
	const format, name, library, step, errno, all = 0, 1, 2, 3, 4, 5
	if len(args) != all {
		return
	}
	_, m = decodeMessages(args[format], m)
	at, _ := strconv.Atoi(args[step])
	e, _ := strconv.Atoi(args[errno])
	if err := inject.Outcome(at, unix.Errno(e), args[library]); err != nil {
		m.warnUser("%s", staysPlain(args[name], err))
		return
	}
	m.warnUser("%s makes its own system calls: the library was put into it", args[name])
}

func staysPlain(name string, err error) string {
	return name + " makes its own system calls and stays on TCP: " + cli.Text(err)
}

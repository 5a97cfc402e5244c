package exnrun

import (
	"os"
	"path/filepath"
	"strings"

	"exnet/directsockets/inject"
	"exnet/internal/cbuild"
	"exnet/internal/child"
	"exnet/internal/cli"
)

// traceCommand makes exn-run be the tracer that puts the library into a static program.
// becomeCommand makes it become such a program (the library's hooks/launch.c does so, too): what
// follows is the library, the format of messages, the program's file and its arguments.
const (
	traceCommand  = "trace"
	becomeCommand = "--become"
)

// injection is what is needed to put the library into the program that starts.
type injection struct {
	config inject.Config
	tracer *inject.Tracer // nil: nothing is injected
}

// startTracer starts the tracer of a program, if it needs one.
func startTracer(p Program, m messages) *inject.Tracer {
	if !p.Kind.Injects() {
		return nil
	}
	file := p.Path
	if p.Script != "" {
		file = p.Script
	}
	t, err := inject.Start(file, cbuild.Place(), []string{"exn-run", traceCommand}, []string{})
	if err != nil {
		m.warn("%s", staysPlain(p.name(), err))
	}
	return t
}

// configure returns what is told the tracer, and false if there is no library: it says so then.
func configure(p Program, o options, m messages) (inject.Config, bool) {
	path, err := buildFree(m.warn)
	if err != nil {
		m.warn("%s (%s)", p.Reason(), cli.Text(err))
		return inject.Config{}, false
	}
	format := inject.Format{JSON: m.json, Quiet: m.quiet, Explain: o.stays()}
	return inject.Config{Library: path, Name: p.name(), Format: format}, true
}

// become replaces this process by the program, with the library in it.
func (i injection) become(path string, argv, environ []string, m messages) error {
	if i.tracer != nil {
		if err := i.tracer.Attach(i.config); err != nil {
			m.warn("%s", staysPlain(i.config.Name, err))
		}
	}
	return become(path, argv, environ)
}

// becomes returns the command of a child that becomes the program with the library of c in it.
func becomes(c inject.Config, path string, argv []string) (string, []string) {
	var format strings.Builder
	for letter, is := range map[rune]bool{'j': c.Format.JSON, 'q': c.Format.Quiet, 'e': c.Format.Explain} {
		if is {
			format.WriteRune(letter)
		}
	}
	return "/proc/self/exe", append([]string{"exn-run", becomeCommand, c.Library, format.String(), c.Name, path}, argv...)
}

// runBecome is "exn-run --become".
func runBecome(args []string, m messages) error {
	const library, format, name, path, argv = 0, 1, 2, 3, 4
	if len(args) <= argv {
		return cli.Usagef("%s is exn-run's own", becomeCommand)
	}
	is := func(letter string) bool { return strings.Contains(args[format], letter) }
	m.json, m.quiet = is("j"), is("q")
	i := injection{config: inject.Config{Library: args[library], Name: filepath.Base(args[name]), Format: inject.Format{JSON: m.json, Quiet: m.quiet, Explain: is("e")}}}
	p, err := FindProgram(args[path])
	if err != nil {
		return programError{child.StartError(err)}
	}
	if i.tracer = startTracer(p, m); i.tracer != nil && i.config.Library == "" {
		if i.config.Library, err = buildFree(m.warn); err != nil {
			i.tracer.Close()
			i.tracer = nil
		}
	}
	return i.become(p.Path, args[argv:], os.Environ(), m)
}

// runTracer is "exn-run trace".
func runTracer(m messages) {
	c, err := inject.Trace(os.NewFile(inject.ConnFD, "tracer"))
	m.json, m.quiet = c.Format.JSON, c.Format.Quiet
	switch {
	case err == nil && c.Format.Explain:
		m.warn("%s makes its own system calls: the library was put into it", c.Name)
	case err != nil && !inject.Gone(err):
		m.warn("%s", staysPlain(c.Name, err))
	}
}

func staysPlain(name string, err error) string {
	return name + " makes its own system calls and stays on TCP: " + cli.Text(err)
}

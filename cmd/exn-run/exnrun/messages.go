package exnrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"exnet/internal/child"
	"exnet/internal/cli"

	"github.com/spf13/pflag"
)

// messages writes what exn-run itself has to say: a line each, or a JSON object, with or without
// warnings.
type messages struct {
	stderr      io.Writer
	json, quiet bool
}

// toSay returns what the flags ask for.
func toSay(fs *pflag.FlagSet, stderr io.Writer) messages {
	is := func(name, value string) bool { return fs.Lookup(name).Value.String() == value }
	return messages{stderr, is("log-format", "json"), is("log-level", "error")}
}

// warnUser says what the user should know, though the program runs.
func (m messages) warnUser(format string, args ...any) {
	if !m.quiet {
		m.writeLine("WARN", fmt.Sprintf(format, args...))
	}
}

// writeLine writes a message in the format of the other commands' logs.
func (m messages) writeLine(level, text string) {
	if !m.json {
		fmt.Fprintf(m.stderr, "exn-run: %s\n", text)
		return
	}
	now := time.Now().Format(time.RFC3339Nano)
	b, err := json.Marshal(map[string]string{"time": now, "level": level, "msg": text, "command": "exn-run"})
	if err == nil {
		fmt.Fprintf(m.stderr, "%s\n", b)
	}
}

// exitFailure is the status when exn-run itself fails, as of env(1) and timeout(1). 126 and 127
// are for the program only.
const exitFailure = 125

// programError says that the program cannot be run.
type programError struct{ err error }

func (e programError) Error() string { return e.err.Error() }
func (e programError) Unwrap() error { return e.err }

// exitStatus says what is to be said about err, in one message, and returns the exit status.
func (m messages) exitStatus(err error) int {
	failure := exitFailure
	var program programError
	if errors.As(err, &program) {
		failure = child.StartStatus(err)
	}
	text, code := cli.Outcome("exn-run", err, failure)
	for line := range strings.Lines(text) {
		m.writeLine("ERROR", strings.TrimSuffix(line, "\n"))
	}
	if usage := (cli.UsageError{}); errors.As(err, &usage) {
		return exitFailure
	}
	return code
}

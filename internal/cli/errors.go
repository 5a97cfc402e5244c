package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// Exit statuses. exn-run, and commands that run a user's command, have others, too.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// UsageError says that the arguments are wrong.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ExitStatus is an exit status that needs no message.
type ExitStatus int

// Error implements error.
func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Report prints each line that Outcome returns, after the command's name, and returns the exit
// status.
func Report(stderr io.Writer, name string, err error, failure int) int {
	text, status := Outcome(name, err, failure)
	for line := range strings.Lines(text) {
		fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimSuffix(line, "\n"))
	}
	return status
}

// Outcome returns what a command of that name says about err, "" if nothing, and its exit status:
// failure, unless err has another. The text is one line, except for Mistakes.
func Outcome(name string, err error, failure int) (text string, status int) {
	var exit ExitStatus
	var usage UsageError
	switch {
	case err == nil:
		return "", ExitOK
	case errors.As(err, &exit):
		return "", int(exit)
	case errors.As(err, &usage):
		failure = ExitUsage
	}
	var m mistakes
	switch {
	case errors.As(err, &m):
		return m.text(), failure
	case failure == ExitUsage:
		return Text(err) + " (see " + name + " -h)", failure
	}
	return Text(err), failure
}

// internalNames are packages whose names precede the messages of their errors. They mean
// nothing to users.
var internalNames = []string{
	"accept", "address", "agent", "arp", "atu", "attach", "broker", "capture", "child", "control", "coredist", "counter", "credit", "crossbar", "daemon", "datagram", "directsockets",
	"doctor", "elffile", "emp", "exec", "memory", "mesh", "exn", "exngo", "exteth", "fabric", "far", "foreign", "hostnet", "identity", "inject", "ipstack", "lab", "linux", "lnet", "mark", "mem",
	"mtu", "multicast", "napi", "netns", "nic", "node", "ofi", "pager", "pairing", "ports", "preload", "probe", "relay", "rma", "route", "rules", "sched",
	"segment", "selftest", "shm", "spill", "stats", "stream", "tcpbench", "topo", "tun", "txloop", "velo", "wire", "worker",
}

// sentinels removes the texts of errors that are for programs (errors.Is), and names of system
// calls.
var sentinels = strings.NewReplacer("\n", "; ", ": fabric: invalid argument", "", "invalid configuration: ", "", "fork/exec ", "")

// Text returns the text of err for people: one line, although joined errors have several,
// no names of packages, and nothing that a terminal would obey (Printable).
func Text(err error) string {
	parts := strings.Split(sentinels.Replace(err.Error()), ": ")
	kept := slices.DeleteFunc(slices.Clone(parts[:len(parts)-1]), func(p string) bool { return slices.Contains(internalNames, p) })
	for i, p := range kept { // of errors that were joined
		if j := strings.LastIndex(p, "; "); j >= 0 && slices.Contains(internalNames, p[j+2:]) {
			kept[i] = p[:j+2]
		}
	}
	text := strings.Join(append(kept, parts[len(parts)-1]), ": ")
	return Printable(strings.ReplaceAll(text, "; : ", "; "))
}

// maxShown is how many bytes of a word Printable shows, of which lastShown are its last.
const maxShown, lastShown = 300, 40

// Printable returns a text that others may have written as one that is safe to show: what does not
// print is escaped as in Go, and words longer than maxShown bytes lose their middles.
func Printable(text string) string {
	var b strings.Builder
	for i, n := 0, 0; i < len(text); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			b.WriteString(strings.Trim(strconv.Quote(text[i:i+n]), `"`))
		} else {
			b.WriteRune(r)
		}
	}
	words := strings.Split(b.String(), " ")
	for i, w := range words {
		if len(w) > maxShown {
			words[i] = w[:runeStart(w, maxShown-lastShown)] + "…" + w[runeStart(w, len(w)-lastShown):]
		}
	}
	return strings.Join(words, " ")
}

// runeStart returns the index of the first byte of the character that s[i] belongs to.
func runeStart(s string, i int) int {
	for !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// maxMistakes is how many mistakes are said.
const maxMistakes = 50

// mistakes is an error that has a line for each mistake of a file.
type mistakes struct{ error }

// Unwrap returns the error.
func (m mistakes) Unwrap() error { return m.error }

// Mistakes marks err, whose text has a line for each mistake of a file. Report prints each of them
// in a line of its own, up to maxMistakes.
func Mistakes(err error) error {
	if err == nil {
		return nil
	}
	return mistakes{err}
}

func (m mistakes) text() string {
	lines := strings.Split(m.Error(), "\n")
	for i, line := range lines {
		if i == maxMistakes {
			lines = append(lines[:i], fmt.Sprintf("%d mistakes more", len(lines)-i))
			break
		}
		lines[i] = Text(errors.New(line))
	}
	return strings.Join(lines, "\n")
}

// FlagError says what is wrong with a flag in the words of all commands, with the flag that
// was probably meant. fs has the flags that there are.
func FlagError(fs *pflag.FlagSet, err error) error {
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &invalid):
		return Usagef("--%s: %w", invalid.GetFlag().Name, valueError(invalid))
	case errors.As(err, &missing):
		return Usagef("%s needs a value", dashedName(missing.GetSpecifiedName(), missing.GetSpecifiedShortnames()))
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			name = short
		}
		name, _, _ = strings.Cut(name, "=")
		return Usagef("there is no flag %s%s", dashedName(name, unknown.GetSpecifiedShortnames()), didYouMean("--", Closest(name, flagNames(fs))))
	}
	return UsageError{err}
}

// dashedName writes a flag as it was given: after one dash if short is not empty.
func dashedName(name, short string) string {
	if short != "" {
		return "-" + name
	}
	return "--" + name
}

// valueError says what is wrong with the value of a flag of pflag's own types.
func valueError(e *pflag.InvalidValueError) error {
	switch e.GetFlag().Value.Type() {
	case "bool":
		return fmt.Errorf("%q is neither true nor false", e.GetValue())
	case "int":
		if errors.Is(e.Unwrap(), strconv.ErrRange) {
			return fmt.Errorf("%s is too far from 0", e.GetValue())
		}
		return fmt.Errorf("%q is not a whole number", e.GetValue())
	case "duration":
		return fmt.Errorf("%q is not a time: write one such as 250ms or 2s", e.GetValue())
	}
	return e.Unwrap()
}

func flagNames(fs *pflag.FlagSet) (names []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// didYouMean is the end of a message; "" if nothing is close.
func didYouMean(before, closest string) string {
	if closest == "" {
		return ""
	}
	return ": did you mean " + before + closest + "?"
}

// UnknownCommand returns the error for a command that does not exist.
func UnknownCommand(name string, names []string) error {
	if c := Closest(name, names); c != "" {
		return Usagef("unknown command %q%s", name, didYouMean("", c))
	}
	return Usagef("unknown command %q: choose from %s", name, strings.Join(names, ", "))
}

// Closest returns the one of names that name was probably meant to be, or "".
func Closest(name string, names []string) string {
	best, distance := "", 1+max(1, min(len(name)/3, 3))
	for _, n := range names {
		d := editDistance(name, n)
		if len(name) >= 3 && strings.HasPrefix(n, name) {
			d = min(d, 1)
		}
		if d < distance {
			best, distance = n, d
		}
	}
	return best
}

// maxWord bounds the work of editDistance.
const maxWord = 64

// editDistance returns how many letters differ, are missing, are extra or have changed places
// (Damerau and Levenshtein, restricted).
func editDistance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return max(len(a), len(b))
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range len(a) {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		rows[0], rows[1], rows[2] = last, row, before
	}
	return rows[1][len(b)]
}

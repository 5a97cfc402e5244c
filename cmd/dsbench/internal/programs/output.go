package programs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/mark"
)

// output says where the figures are in what a client prints: regular expressions, whose first
// group is the number.
type output struct {
	value    string
	per      float64 // the number is so many times the figure; 0: once
	p50, p99 string  // "": it does not say them. A second group is the unit
	times    float64 // microseconds of their unit, without such a group; 0: one
	refuse   string  // a run that prints this does not count; "": all do
}

// parseFigures takes the figures from what a client has printed.
func (o output) parseFigures(stdout string) (s sample, err error) {
	if o.refuse != "" {
		if why := regexp.MustCompile(o.refuse).FindString(stdout); why != "" {
			return s, fmt.Errorf("the client met an error: %s", why)
		}
	}
	if s.value, err = measure.Figure(o.value, stdout); err != nil {
		return s, err
	}
	s.value /= cmp.Or(o.per, 1)
	s.p50, s.p99 = o.findMicroseconds(o.p50, stdout), o.findMicroseconds(o.p99, stdout)
	return s, nil
}

// findMicroseconds finds a time; 0: the client does not say it.
func (o output) findMicroseconds(pattern, stdout string) float64 {
	if pattern == "" {
		return 0
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(stdout)
	switch {
	case m == nil:
		return 0
	case len(m) > 2:
		return measure.Number(m[1]) * map[string]float64{"us": 1, "ms": 1e3, "s": 1e6}[m[2]]
	case o.times > 0:
		return measure.Number(m[1]) * o.times
	}
	return measure.Number(m[1])
}

// expandWords replaces the words in braces.
func (e *end) expandWords(s string) string {
	nobody := ""
	if os.Geteuid() == 0 {
		nobody = "user nobody nogroup;"
	}
	seconds := int(e.o.duration / time.Second)
	count := e.p.perSecond * seconds
	if e.o.direct {
		count *= max(1, e.p.faster)
	}
	return strings.NewReplacer("{host}", e.host, "{port}", e.port, "{backHost}", e.backHost, "{backPort}", e.backPort, "{dir}", e.dir,
		"{seconds}", strconv.Itoa(seconds), "{count}", strconv.Itoa(count), "{nobody}", nobody).Replace(s)
}

var words = regexp.MustCompile(`'[^']*'|\S+`)

// splitLine returns the words of a command line; one with blanks, or without anything, is in
// quotes.
func (e *end) splitLine(s string) []string {
	argv := words.FindAllString(s, -1)
	for i, word := range argv {
		argv[i] = strings.Trim(e.expandWords(word), "'")
	}
	argv[0] = fileOf(argv[0])
	return argv
}

// asUser returns the words of a command line of the server's user.
func (e *end) asUser(s string) []string {
	argv := e.splitLine(s)
	if e.p.user == "" || os.Geteuid() != 0 {
		return argv
	}
	return slices.Concat([]string{"setpriv", "--reuid", e.p.user, "--regid", e.p.user, "--clear-groups", "--"}, argv)
}

// prepareFiles writes the files, and runs what runs before the server.
func (e *end) prepareFiles() error {
	for name, text := range e.p.files {
		if err := os.WriteFile(filepath.Join(e.dir, name), []byte(e.expandWords(text)), 0o644); err != nil {
			return err
		}
	}
	if e.p.before == "" {
		return nil
	}
	argv := e.asUser(e.p.before)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", e.p.before, err, result.LastLine(string(out)))
	}
	return nil
}

// Missing says why the measure cannot be taken here; "": it can.
func (p Pair) Missing() string {
	for name := range strings.FieldsSeq(p.needs) {
		path, err := exec.LookPath(fileOf(name))
		if err != nil {
			return name + " is not installed"
		}
		if !p.exnGo {
			continue
		}
		switch version, err := mark.Read(path); {
		case err != nil:
			return err.Error()
		case version == "":
			return name + " is not built by exn-go"
		}
	}
	return ""
}

// fileOf finds programs where not every user's PATH has them.
func fileOf(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	for _, pattern := range []string{"/usr/sbin/", "/usr/lib/postgresql/*/bin/"} {
		if found, err := filepath.Glob(pattern + name); err == nil && len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return name
}

// pgbenchLog begins the names of the files in which pgbench notes how long transactions took.
const pgbenchLog = "transactions"

// pgbenchTimes takes the latencies from the last run's files, and removes them.
func pgbenchTimes(e *end) (p50, p99 float64, err error) {
	files, err := filepath.Glob(filepath.Join(e.dir, pgbenchLog+".*"))
	if err != nil {
		return 0, 0, err
	}
	var times []float64
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, 0, err
		}
		if err := os.Remove(path); err != nil {
			return 0, 0, err
		}
		for line := range strings.Lines(string(text)) { // client, transaction, microseconds, ...
			if f := strings.Fields(line); len(f) > 2 {
				times = append(times, measure.Number(f[2]))
			}
		}
	}
	if len(times) == 0 {
		return 0, 0, errors.New("pgbench noted no transaction")
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}

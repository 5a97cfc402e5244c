package e2e

import (
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
)

var cpython = flag.String("cpython", "test_socketserver,test_httplib,test_socket",
	"suites of CPython to run under exn-run; all: also the long ones")

// allSuites are those of issue 5. test_asyncio takes more than a minute, test_ssl
// and test_selectors half of one.
const allSuites = "test_socket,test_selectors,test_socketserver,test_httplib,test_ssl,test_asyncio"

// suiteTime is when a suite counts as hung.
const suiteTime = 8 * time.Minute

// suite is what one run of a suite of CPython said.
type suite struct {
	ran    int
	failed map[string]bool // names of tests; with the last one's if it hangs
	out    string
}

var (
	testLine = regexp.MustCompile(`(?m)^(\w+) \(([\w.]+)\)(?:\n[^\n]*)? \.\.\. `)
	failLine = regexp.MustCompile(`(?m)^(?:FAIL|ERROR): (\w+) \(([\w.]+)\)`)
	ranLine  = regexp.MustCompile(`(?m)^Ran (\d+) tests? in `)
)

// parseSuite reads what "python3 -m test -v" wrote.
func parseSuite(out string, hung bool) suite {
	s := suite{failed: make(map[string]bool), out: out}
	for _, m := range failLine.FindAllStringSubmatch(out, -1) {
		s.failed[m[2]] = true
	}
	for _, m := range ranLine.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1]) // digits
		s.ran += n
	}
	if hung {
		name := "the suite"
		if all := testLine.FindAllStringSubmatch(out, -1); len(all) > 0 {
			name = all[len(all)-1][2]
		}
		s.failed[name+" hangs"] = true
	}
	return s
}

// startSuite starts a suite, or those of its tests whose names are given.
func (l *local) startSuite(t *testing.T, python, name string, tests ...string) (wait func() suite) {
	t.Helper()
	// Sockets of virtual machines and of CAN are no matter of exn-run's, and hang
	// in some machines.
	argv := []string{python, "-m", "test", "-v", "-u", "network", "-i", "*VSOCK*", "-i", "*CAN*"}
	for _, test := range tests {
		argv = append(argv, "-m", test)
	}
	p := l.start(t, append(argv, name)...)
	return func() suite {
		t.Helper()
		hung := false
		select {
		case <-p.done:
		case <-time.After(suiteTime):
			hung = true
			p.end(t) // exn-run is to report
		}
		s := parseSuite(p.out.String(), hung)
		if s.ran == 0 && !hung {
			t.Fatalf("%s ran no test:\n%s", p.name, &p.out)
		}
		return s
	}
}

// CPython's own tests of sockets: what passes without exn-run passes with it.
func TestRootRunCPython(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	python := "/usr/bin/python3"
	if exec.Command(python, "-c", "import test.test_socket").Run() != nil {
		need(t, "test.test_socket")
	}
	names := *cpython
	if names == "all" {
		names = allSuites
	}
	for name := range strings.SplitSeq(names, ",") {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			plain, direct := newLocal(t, false), newLocal(t, true)
			// The suites' connections are short: offer them at the first send.
			wait := 20
			if name == "test_socketserver" {
				wait = 2 // a handler's thread is to have ended before nine more connections
			}
			direct.env = []string{"EXNET_DS_SENDS=0", "EXNET_DS_BYTES=0", fmt.Sprint("EXNET_DS_WAIT=", wait)}
			waitPlain := plain.startSuite(t, python, name)
			with := direct.startSuite(t, python, name)()
			without := waitPlain()
			worse := slices.DeleteFunc(slices.Sorted(maps.Keys(with.failed)), func(test string) bool { return without.failed[test] })
			for _, test := range worse {
				// A test that needs its time may fail on a loaded machine. Once more, alone.
				if !strings.HasSuffix(test, " hangs") && len(direct.startSuite(t, python, name, test)().failed) == 0 {
					t.Logf("%s failed once, and not again", test)
					continue
				}
				t.Errorf("%s fails under exn-run only:\n%s", test, about(with.out, test))
			}
			n, onTCP, bytes := 0, make(map[string]int), uint64(0)
			for _, c := range direct.connections(t) {
				if c.Path == "direct" {
					n++
					bytes += c.Sent.DirectBytes
				} else {
					onTCP[c.Choice]++
				}
			}
			t.Logf("%s: %d tests; %d fail without exn-run, %d with; %d connections direct (%d bytes sent), the others %v",
				name, with.ran, len(without.failed), len(with.failed), n, bytes, onTCP)
			if n == 0 && name != "test_selectors" { // which has no connection that moves much
				t.Error("no connection was direct")
			}
		})
	}
}

// about returns what was written about a failed test.
func about(out, test string) string {
	at := regexp.MustCompile(`(?m)^(?:FAIL|ERROR): \w+ \(` + regexp.QuoteMeta(test) + `\)`).FindStringIndex(out)
	if at == nil {
		return out[max(0, len(out)-2000):]
	}
	text := out[at[0]:]
	if end := strings.Index(text[1:], "\n====="); end > 0 {
		text = text[:end+1]
	}
	return text[:min(len(text), 4000)]
}

func TestParseSuite(t *testing.T) {
	const out = `testA (test.test_socket.X.testA) ... ok
testB (test.test_socket.X.testB)
About B. ... FAIL
testC (test.test_socket.Y.testC) ... ERROR
testD (test.test_socket.Y.testD) ... `
	const end = `
======================================================================
ERROR: testC (test.test_socket.Y.testC)
----------------------------------------------------------------------
OSError
======================================================================
FAIL: testB (test.test_socket.X.testB)
----------------------------------------------------------------------
AssertionError

Ran 4 tests in 0.007s
`
	s := parseSuite(out+"ok\n"+end, false)
	if got, want := fmt.Sprint(s.ran, slices.Sorted(maps.Keys(s.failed))), "4 [test.test_socket.X.testB test.test_socket.Y.testC]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := about(s.out, "test.test_socket.Y.testC"); !strings.HasSuffix(got, "\nOSError") {
		t.Errorf("about the test: %q", got)
	}
	if s := parseSuite(out, true); !s.failed["test.test_socket.Y.testD hangs"] || len(s.failed) != 1 {
		t.Errorf("hanging: %v", s.failed)
	}
}

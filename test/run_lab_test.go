package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/exn-run/exnrun"
	"exnet/directsockets/broker/client"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

// buildExnRun builds exn-run once for all tests and returns its path, which other
// users can read too.
var buildExnRun = sync.OnceValues(func() (string, error) {
	dir, err := testlab.Build("exn-run")
	exnRunDir = dir
	return filepath.Join(dir, "exn-run"), err
})

// exnRunDir is where buildExnRun has put it; "": nowhere.
var exnRunDir string

func removeExnRun() {
	if exnRunDir != "" {
		os.RemoveAll(exnRunDir)
	}
}

// local is a namespace with nothing but a loopback interface, for programs that
// talk to each other, with exn-run --loopback or without.
type local struct {
	ns      *netns.NS
	exnRun  string   // "": programs run as they are
	env     []string // for exn-run
	reports []string
	dir     string
}

// eachLocal runs a test without exn-run (sockets=tcp) and with it
// (sockets=direct). What fails in the first fails for another reason.
func eachLocal(t *testing.T, f func(t *testing.T, l *local)) {
	t.Helper()
	for _, direct := range []bool{false, true} {
		t.Run("sockets="+map[bool]string{false: "tcp", true: "direct"}[direct], func(t *testing.T) {
			checkLeaks(t)
			f(t, newLocal(t, direct))
		})
	}
}

// newLocal makes a namespace, which goes when the test ends. The caller has called
// checkLeaks.
func newLocal(t *testing.T, direct bool) *local {
	t.Helper()
	l := &local{ns: testlab.LoopbackNS(t), dir: sharedDir(t)}
	if direct {
		var err error
		if l.exnRun, err = buildExnRun(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		l.endBroker(t)
		testlab.CheckNobodyIn(t, l.ns)
	})
	return l
}

// sharedDir is a directory of the test that all users can look into.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}

// endBroker ends the broker that exn-run has started for root, which would stay for some
// seconds.
func (l *local) endBroker(t *testing.T) {
	t.Helper()
	err := l.ns.Do(func() error {
		path, err := client.Find()
		if err != nil {
			return nil // it has ended, or there was none
		}
		return endBrokerAt(path)
	})
	if err != nil {
		t.Error(err)
	}
}

// endBrokerAt ends the broker whose socket is path, if there is one.
func endBrokerAt(path string) error {
	pid, err := testlab.BrokerPID(path)
	if err != nil {
		return nil // it has ended
	}
	return unix.Kill(pid, unix.SIGTERM)
}

// argv is what runs a program: itself, or exn-run with a report.
func (l *local) argv(argv []string) []string {
	if l.exnRun == "" {
		return argv
	}
	report := filepath.Join(l.dir, fmt.Sprintf("report%d", len(l.reports)))
	l.reports = append(l.reports, report)
	flags := slices.Concat([]string{"env"}, l.env, []string{l.exnRun, "--loopback", "--report", report})
	// Another build of the library, such as one with sanitizers.
	if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" {
		flags = append(flags, "--library", library)
	}
	return slices.Concat(flags, []string{"--", programPath(argv[0])}, argv[1:])
}

// as is argv for a user other than root, who writes a report of his own.
func (l *local) as(user string, argv []string) []string {
	return append([]string{"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"}, l.argv(argv)...)
}

// start starts a program, which is killed when the test ends.
func (l *local) start(t *testing.T, argv ...string) *process {
	t.Helper()
	return startIn(t, l.ns, nil, l.argv(argv)...)
}

// serve starts a server and waits until it listens.
func (l *local) serve(t *testing.T, port string, argv ...string) *process {
	t.Helper()
	p := l.start(t, argv...)
	p.listens(t, port)
	return p
}

// run runs a program that must succeed, and returns its output.
func (l *local) run(t *testing.T, argv ...string) string {
	t.Helper()
	return l.start(t, argv...).wait(t)
}

// end ends a server by SIGTERM and waits for it, whatever its status.
func (p *process) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(unix.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(hangTime):
		t.Fatalf("%s does not end\n%s", p.name, &p.out)
	}
}

// connections returns what the programs that have ended reported.
func (l *local) connections(t *testing.T) []exnrun.Record {
	t.Helper()
	return l.connectionsAfter(t, 0)
}

// connectionsAfter returns what they reported, but for the first so many programs.
func (l *local) connectionsAfter(t *testing.T, programs int) []exnrun.Record {
	t.Helper()
	var all []exnrun.Record
	for _, path := range l.reports[programs:] {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var r exnrun.Record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			all = append(all, r)
		}
		f.Close()
	}
	return all
}

// expect is what programs must have reported at least, of a side.
type expect struct {
	program string // a part of its name
	server  bool
	direct  int    // connections with direct bytes
	bytes   uint64 // that they sent and received so, together
}

// check fails the test unless the reports have what is expected. Without exn-run
// there is nothing to check.
func (l *local) check(t *testing.T, want ...expect) {
	t.Helper()
	for _, text := range l.missing(t, want) {
		t.Error(text)
	}
}

// checkSoon does once until check has nothing to say, several times: on a busy machine a broker may
// come to an offer when the connection is over.
func (l *local) checkSoon(t *testing.T, once func(), want ...expect) {
	t.Helper()
	for range 20 {
		if once(); len(l.missing(t, want)) == 0 {
			return
		}
	}
	l.check(t, want...)
}

// checkLonger does once until its own connections are what is expected, each time for twice as
// long: how long a connection waits for its broker is a matter of the machine's load, and that it
// becomes direct at all is not.
func (l *local) checkLonger(t *testing.T, once func(time.Duration), want ...expect) {
	t.Helper()
	const first, most = time.Second, 32 * time.Second
	for d := first; ; d *= 2 {
		before := len(l.reports)
		once(d)
		missing := l.missingOf(l.connectionsAfter(t, before), want)
		if len(missing) == 0 {
			return
		}
		if d == most {
			t.Errorf("in a run of %v: %s", d, strings.Join(missing, "\n"))
			return
		}
	}
}

// missing says what of want the connections until now do not have.
func (l *local) missing(t *testing.T, want []expect) []string {
	t.Helper()
	return l.missingOf(l.connections(t), want)
}

// missingOf says what of want the connections all do not have.
func (l *local) missingOf(all []exnrun.Record, want []expect) (list []string) {
	if l.exnRun == "" {
		return nil
	}
	for _, w := range want {
		n, bytes, seen := 0, uint64(0), new(strings.Builder)
		for _, c := range all {
			if !strings.Contains(c.Program, w.program) || c.Server != w.server {
				continue
			}
			fmt.Fprintf(seen, "%s[%d] %v - %v: %s, %d and %d bytes direct\n", c.Program, c.PID, c.Local, c.Remote, c.Choice,
				c.Sent.DirectBytes, c.Received.DirectBytes)
			if c.Path == "direct" {
				n++
				bytes += c.Sent.DirectBytes + c.Received.DirectBytes
			}
		}
		if n < max(w.direct, 1) || bytes < w.bytes {
			list = append(list, fmt.Sprintf("%s (server: %v): %d connections and %d bytes direct, want %d and %d:\n%s", w.program, w.server, n, bytes,
				max(w.direct, 1), w.bytes, seen))
		}
	}
	return list
}

// startAs starts a program as another user.
func (l *local) startAs(t *testing.T, user string, argv ...string) *process {
	t.Helper()
	return startIn(t, l.ns, nil, l.as(user, argv)...)
}

// optional skips the test unless programs are there that CI does not install.
func optional(t *testing.T, packages string, names ...string) {
	t.Helper()
	netnstest.Require(t)
	for _, name := range names {
		if _, err := exec.LookPath(programPath(name)); err != nil {
			t.Skipf("%s is not there: apt-get install %s", name, packages)
		}
	}
}

// needRun skips or fails the test without what exn-run builds its library
// with.
func needRun(t *testing.T, names ...string) {
	t.Helper()
	need(t, append([]string{"gcc"}, names...)...)
}

// script is the path of a script of testdata.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata/run", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// same fails the test unless two files have the same content.
func same(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s has %d bytes that are not the %d of %s", got, len(a), len(b), want)
	}
}

package exngo

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

var (
	stdFlag    = flag.Bool("std", false, "run whole test suites of others, built by go and by exn-go, and print the documents' tables")
	modulesFor = flag.String("suites", "", "with -std: only packages that have this in their path")
)

const (
	xnet = "golang.org/x/net@v0.46.0"
	grpc = "google.golang.org/grpc@v1.76.0"
)

// suite is a package whose own tests are run.
type suite struct {
	path   string // of the package
	module string // with its version; "": the standard library
	part   string // of its tests, for -test.run, without -std; "": none
}

// suites are those that the documents have in their tables.
var suites = []suite{
	{path: "net", part: "^(TestSendfile.*|TestSplice|TestBuffers_WriteTo|TestCloseWrite|TestConnAndListener|TestUDP.*|TestPacketConn|TestConnAndPacketConn|TestWriteToUDP)$"},
	{path: "net/http"},
	{path: "net/http/httptest"},
	{path: "net/http/httputil", part: "."},
	{path: "crypto/tls"},
	{path: "net/rpc"},
	{path: "net/rpc/jsonrpc"},
	{path: "net/smtp"},
	{path: "net/textproto"},
	{path: "log/syslog"},
	{path: "golang.org/x/net/nettest", module: xnet},
	{path: "golang.org/x/net/http2", module: xnet},
	{path: "golang.org/x/net/http2/h2c", module: xnet},
	{path: "google.golang.org/grpc", module: grpc},
	{path: "google.golang.org/grpc/test", module: grpc},
	{path: "google.golang.org/grpc/internal/transport", module: grpc},
	{path: "google.golang.org/grpc/health", module: grpc},
	{path: "google.golang.org/grpc/credentials", module: grpc},
	{path: "google.golang.org/grpc/credentials/alts", module: grpc},
	{path: "google.golang.org/grpc/credentials/tls/certprovider/pemfile", module: grpc},
	{path: "google.golang.org/grpc/balancer/grpclb", module: grpc},
	{path: "google.golang.org/grpc/balancer/leastrequest", module: grpc},
	{path: "google.golang.org/grpc/balancer/rls", module: grpc},
	{path: "google.golang.org/grpc/balancer/roundrobin", module: grpc},
	{path: "google.golang.org/grpc/balancer/weightedroundrobin", module: grpc},
}

// mode is how the tests of a suite are run.
type mode struct {
	name string
	env  []string
}

// modes are settings of direct sockets. In eager, each connection is offered at once, and Dial and
// Accept wait for it.
var modes = []mode{
	{"default", nil},
	{"eager", []string{"EXNET_DS_SENDS=0", "EXNET_DS_WAIT=20"}},
}

// outcome is what the tests of a suite have said, by name.
type outcome struct {
	passed, failed, skipped []string
	out                     []byte
	direct, ends            int // ends of connections that moved bytes by memory, and all
}

// TestSuites runs tests of others with their connections direct: none fails that passes in a
// program that the go command built. What fails once and passes alone, as some do on a busy
// machine, is reported, and no failure.
func TestSuites(t *testing.T) {
	longtest.Skip(t)
	r := runner{broker: testlab.StartBroker(t).Path(), run: filepath.Join(t.TempDir(), "exn-run")}
	if out, err := exec.Command("go", "build", "-o", r.run, "exnet/cmd/exn-run").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range suites {
		if s.part == "" && !*stdFlag || !strings.Contains(s.path, *modulesFor) {
			continue
		}
		t.Run(s.path, func(t *testing.T) { r.suite(t, s) })
	}
}

// runner runs suites.
type runner struct {
	broker, run string // paths of a broker's socket, and of exn-run
}

func (r runner) suite(t *testing.T, s suite) {
	dir := s.dir(t)
	with := s.build(t, dir, exnGo(t, dir, "test", "-c"))
	plain := sync.OnceValue(func() string { return s.build(t, dir, exec.Command("go", "test", "-c")) })
	pattern := s.part
	row := []string{s.path}
	var known []string // pass in a plain build
	if *stdFlag {
		pattern = "."
		o := r.tests(t, s, dir, plain(), pattern, nil)
		t.Logf("plain: failed %q", o.failed)
		row = append(row, o.counts())
		known = o.passed
	}
	for _, m := range modes {
		o := r.tests(t, s, dir, with, pattern, &m)
		again := slices.DeleteFunc(append(slices.Clone(o.failed), o.missing(known)...), func(name string) bool {
			return r.passesAlone(t, s, dir, with, name, &m)
		})
		t.Logf("%s: %d passed, failed once %q, not run %q, then alone, too, %q, %d skipped, %d of %d ends direct",
			m.name, len(o.passed), o.failed, o.missing(known), again, len(o.skipped), o.direct, o.ends)
		row = append(row, o.counts(), fmt.Sprintf("%d of %d", o.direct, o.ends))
		for _, name := range again {
			if r.passesTwice(t, s, dir, plain(), name) {
				t.Errorf("%s: %s fails, and passes in a plain build:\n%s", m.name, name, tail(o.out))
			}
		}
	}
	if *stdFlag {
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
}

// counts are the cells of a table: passed, failed and skipped.
func (o outcome) counts() string {
	return fmt.Sprintf("%d, %d, %d", len(o.passed), len(o.failed), len(o.skipped))
}

// missing are those of names that said nothing, as when an earlier test ended the program.
func (o outcome) missing(names []string) (none []string) {
	for _, name := range names {
		if !slices.Contains(o.passed, name) && !slices.Contains(o.failed, name) && !slices.Contains(o.skipped, name) {
			none = append(none, name)
		}
	}
	return none
}

// dir is where the package is.
func (s suite) dir(t *testing.T) string {
	if s.module == "" {
		tc, err := findToolchain("")
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(tc.GOROOT, "src", s.path)
	}
	cmd := exec.Command("go", "mod", "download", "-json", s.module)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("%s: %v", s.module, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(s.module, "@")
	return filepath.Join(m.Dir, strings.TrimPrefix(s.path, path))
}

// build has a command make a test binary.
func (s suite) build(t *testing.T, dir string, cmd *exec.Cmd) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "suite.test")
	cmd.Dir = dir
	cmd.Args = append(cmd.Args, "-o", name)
	if cmd.Env == nil {
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off") // as exnGo has it
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, tail(out))
	}
	return name
}

// tests runs those that match pattern; m is nil for a plain build.
func (r runner) tests(t *testing.T, s suite, dir, binary, pattern string, m *mode) (o outcome) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	args := []string{binary, "-test.short", "-test.v=test2json", "-test.run=" + pattern, "-test.timeout=15m"}
	report := filepath.Join(t.TempDir(), "report")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "EXNET_") })
	if m != nil {
		args = append([]string{r.run, "--loopback", "--report", report, "--"}, args...)
		env = append(append(env, m.env...), client.PathEnv+"="+r.broker)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	o = parseTests(out)
	if at := crash.FindIndex(out); at != nil && err != nil {
		t.Logf("%s:\n%s", s.path, out[at[0]:min(len(out), at[0]+4000)])
	}
	if err != nil && len(o.failed) == 0 {
		t.Errorf("%s: %v\n%s", s.path, err, tail(out))
	}
	if m != nil {
		o.direct, o.ends = countEnds(t, report)
	}
	return o
}

// passesAlone runs a test by itself, up to three times.
func (r runner) passesAlone(t *testing.T, s suite, dir, binary, name string, m *mode) bool {
	t.Helper()
	for range 3 {
		if slices.Contains(r.tests(t, s, dir, binary, exactly(name), m).passed, name) {
			return true
		}
	}
	return false
}

// passesTwice runs a test of a plain build by itself, two times.
func (r runner) passesTwice(t *testing.T, s suite, dir, binary, name string) bool {
	t.Helper()
	for range 2 {
		if !slices.Contains(r.tests(t, s, dir, binary, exactly(name), nil).passed, name) {
			return false
		}
	}
	return true
}

// exactly is a pattern for -test.run that matches a test, or one within a test.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	return strings.Join(parts, "/")
}

// crash is how a message of package runtime begins that ends a program.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error): `)

var (
	beginLine = regexp.MustCompile(`\x16=== RUN   (\S+)\n`)
	endLine   = regexp.MustCompile(`\x16 *--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// parseTests reads what a test binary prints with -test.v=test2json. A test that has begun and
// says nothing of its end has failed. Of a test with tests within only these count, unless it
// alone has failed.
func parseTests(out []byte) (o outcome) {
	o.out = out
	ends := make(map[string]string)
	var names []string
	for _, m := range beginLine.FindAllSubmatch(out, -1) {
		if name := string(m[1]); ends[name] == "" {
			names, ends[name] = append(names, name), "FAIL"
		}
	}
	for _, m := range endLine.FindAllSubmatch(out, -1) {
		ends[string(m[2])] = string(m[1])
	}
	within := make(map[string]bool) // by name and end: a test within has that end
	for name, end := range ends {
		for i := range name {
			if name[i] == '/' {
				within[name[:i]], within[name[:i]+" "+end] = true, true
			}
		}
	}
	for _, name := range names {
		switch end := ends[name]; {
		case end == "FAIL" && !within[name+" FAIL"]:
			o.failed = append(o.failed, name)
		case within[name]:
		case end == "PASS":
			o.passed = append(o.passed, name)
		case end == "SKIP":
			o.skipped = append(o.skipped, name)
		}
	}
	return o
}

// TestParseTests reads tests within tests, output that does not end its line, and a test that
// does not end.
func TestParseTests(t *testing.T) {
	o := parseTests([]byte("\x16=== RUN   TestA\n\x16=== RUN   TestA/x\nno newline\x16=== RUN   TestA/y/z\n--- PASS: TestA/x (0.1s)\n" +
		"\x16--- FAIL: TestA (0.1s)\n    \x16    --- PASS: TestA/x (0.1s)\n\x16    --- FAIL: TestA/y/z (0.1s)\n" +
		"\x16=== RUN   TestB\n\x16--- SKIP: TestB (0s)\n\x16=== RUN   TestC\npanic: no"))
	want := "[TestA/x] [TestA/y/z TestC] [TestB]"
	if got := fmt.Sprint(o.passed, " ", o.failed, " ", o.skipped); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := fmt.Sprint(o.missing([]string{"TestA/x", "TestD"})); got != "[TestD]" {
		t.Errorf("%s is missing, want TestD", got)
	}
	if got, want := exactly("Test/a.b"), `^Test$/^a\.b$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// countEnds counts the ends of connections in a report of exn-run.
func countEnds(t *testing.T, report string) (direct, all int) {
	t.Helper()
	for line := range bytes.Lines(readFile(t, report)) {
		var r struct {
			Path string `json:"path"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		all++
		if r.Path == "direct" {
			direct++
		}
	}
	return direct, all
}

func tail(out []byte) []byte { return out[max(0, len(out)-6000):] }

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

// suite is a package whose own tests are run.
type suite struct {
	path   string // of the package
	module string // with its version; "": the standard library
	part   string // of its tests, for -test.run, without -std; "": none
}

// suites are those that the documents have in their tables.
var suites = []suite{
	{path: "net", part: "^(TestSendfile.*|TestSplice|TestBuffers_WriteTo|TestCloseWrite|TestConnAndListener)$"},
	{path: "net/http"},
	{path: "net/http/httptest"},
	{path: "net/http/httputil", part: "."},
	{path: "crypto/tls"},
	{path: "net/rpc"},
	{path: "net/rpc/jsonrpc"},
	{path: "net/smtp"},
	{path: "net/textproto"},
	{path: "log/syslog"},
	{path: "golang.org/x/net/nettest", module: "golang.org/x/net@v0.46.0"},
	{path: "golang.org/x/net/http2", module: "golang.org/x/net@v0.46.0"},
	{path: "golang.org/x/net/http2/h2c", module: "golang.org/x/net@v0.46.0"},
	{path: "google.golang.org/grpc", module: "google.golang.org/grpc@v1.76.0"},
	{path: "google.golang.org/grpc/test", module: "google.golang.org/grpc@v1.76.0"},
	{path: "google.golang.org/grpc/internal/transport", module: "google.golang.org/grpc@v1.76.0"},
	{path: "google.golang.org/grpc/health", module: "google.golang.org/grpc@v1.76.0"},
	{path: "google.golang.org/grpc/credentials", module: "google.golang.org/grpc@v1.76.0"},
}

// mode is how the tests of a suite are run.
type mode struct {
	name string
	env  []string
}

// eager has each connection be offered at once, and Dial and Accept wait for it.
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
// machine, is told of, and no failure.
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
	pattern := s.part
	if *stdFlag {
		pattern = "."
	}
	var plain string
	row := []string{s.path}
	var o outcome
	for _, m := range modes {
		o = r.tests(t, s, dir, with, pattern, &m)
		var again []string
		for _, name := range o.failed {
			if !r.passesAlone(t, s, dir, with, name, &m) {
				again = append(again, name)
			}
		}
		t.Logf("%s: %d passed, failed once %q, then alone, too, %q, %d skipped, %d of %d ends direct",
			m.name, len(o.passed), o.failed, again, len(o.skipped), o.direct, o.ends)
		row = append(row, fmt.Sprintf("%d, %d, %d", len(o.passed), len(o.failed), len(o.skipped)), fmt.Sprintf("%d of %d", o.direct, o.ends))
		for _, name := range again {
			if plain == "" {
				plain = s.build(t, dir, exec.Command("go", "test", "-c"))
			}
			if r.passesAlone(t, s, dir, plain, name, nil) {
				t.Errorf("%s: %s fails, and passes in a plain build:\n%s", m.name, name, tail(o.out))
			}
		}
	}
	if *stdFlag {
		if plain == "" {
			plain = s.build(t, dir, exec.Command("go", "test", "-c"))
		}
		o := r.tests(t, s, dir, plain, pattern, nil)
		row = slices.Insert(row, 1, fmt.Sprintf("%d, %d, %d", len(o.passed), len(o.failed), len(o.skipped)))
		t.Logf("plain: failed %q", o.failed)
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
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
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, tail(out))
	}
	return name
}

// tests runs those that match pattern; m is nil for a plain build.
func (r runner) tests(t *testing.T, s suite, dir, binary, pattern string, m *mode) (o outcome) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Minute)
	defer stop()
	args := []string{binary, "-test.short", "-test.v", "-test.run=" + pattern, "-test.timeout=10m"}
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
		if o := r.tests(t, s, dir, binary, "^"+regexp.QuoteMeta(name)+"$", m); slices.Contains(o.passed, name) {
			return true
		}
	}
	return false
}

var testLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// parseTests reads what a test binary prints with -test.v. A test that has begun and says
// nothing of its end has failed.
func parseTests(out []byte) (o outcome) {
	o.out = out
	ended := make(map[string]bool)
	for _, m := range testLine.FindAllSubmatch(out, -1) {
		name := string(m[2])
		ended[name] = true
		switch string(m[1]) {
		case "PASS":
			o.passed = append(o.passed, name)
		case "FAIL":
			o.failed = append(o.failed, name)
		default:
			o.skipped = append(o.skipped, name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^=== RUN   ([^\s/]+)$`).FindAllSubmatch(out, -1) {
		if name := string(m[1]); !ended[name] {
			ended[name] = true
			o.failed = append(o.failed, name)
		}
	}
	return o
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

package exngo

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// commandEnv has the test binary be exn-go.
const commandEnv = "EXNGO_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		os.Unsetenv(commandEnv)
		os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// testWait is how long anything may take that does not depend on how fast it is.
const testWait = 3 * time.Minute

// exnGo is exn-go with arguments, in a directory.
func exnGo(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir = dir
	work := os.Getenv("EXNGO_TEST_GOWORK")
	if work == "" {
		work = "off"
	}
	cmd.Env = append(os.Environ(), commandEnv+"=1", "GOFLAGS=", "GOWORK="+work)
	return cmd
}

// copyTree copies a folder of testdata to a new module.
func copyTree(t testing.TB, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "go.mod"), "module "+name+".test\n\ngo 1.25\n")
	return dir
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// buildPlain builds the program in dir without direct sockets, with what the check itself has built
// of the standard library, and returns its path.
func buildPlain(t testing.TB, dir string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "plain")
	cmd := exec.Command("go", "build", "-trimpath", "-o", name)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return name
}

// buildProgram builds the program in dir and returns its path.
func buildProgram(t testing.TB, dir string, args ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	out, err := exnGo(t, dir, append([]string{"build", "-o", name}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("exn-go build %v: %v\n%s", args, err, out)
	}
	return name
}

// startPiped starts a program, which is killed if it hangs. The caller waits for it.
func startPiped(t *testing.T, program string, env []string) (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser, stderr *bytes.Buffer) {
	t.Helper()
	cmd, stderr = exec.Command(program), new(bytes.Buffer)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(testWait, func() { cmd.Process.Kill() })
	t.Cleanup(func() { hang.Stop() })
	return cmd, in, out, stderr
}

// startWeb runs testdata/web until it has done its requests; it lasts until the test ends.
func startWeb(t *testing.T, program string, env ...string) {
	t.Helper()
	cmd, in, out, stderr := startPiped(t, program, env)
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, stderr)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "done\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// TestRules has rules and loopback's inclusion keep a program on TCP, and a rule include
// loopback, as under exn-run.
func TestRules(t *testing.T) {
	longtest.Skip(t)
	s := testlab.StartBroker(t)
	program := buildProgram(t, copyTree(t, "web"))
	const all = " * 00000000000000000000000000000000 0 0 65535"
	for _, tt := range []struct {
		name   string
		env    []string
		direct bool
		why    string
	}{
		{"not included", []string{"EXNET_LOOPBACK=0", "EXNET_EXPLAIN=1"}, false, connstats.WhyAddressNotWanted.String()},
		{"a rule says tcp", []string{"EXNET_LOOPBACK=1", "EXNET_EXPLAIN=1", "EXNET_RULES=t program" + all}, false, connstats.WhyRule.String()},
		{"a rule includes", []string{"EXNET_RULES=d prog*" + all}, true, ""},
		{"a rule for another program", []string{"EXNET_LOOPBACK=1", "EXNET_RULES=t other" + all}, true, ""},
		{"malformed", []string{"EXNET_LOOPBACK=1", "EXNET_RULES=x"}, false, ""},
		{"only a broker", nil, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			startWeb(t, program, append(tt.env, client.PathEnv+"="+s.Path())...)
			if tt.direct {
				eventuallyDirect(t, s)
				return
			}
			if client, server := directEnds(s); client+server > 0 {
				t.Errorf("direct ends: client %d, server %d", client, server)
			}
			for _, c := range s.Connections() {
				if c.Reason != tt.why {
					t.Errorf("%v to %v: %s, because %q; want %q", c.Local, c.Remote, c.Mode, c.Reason, tt.why)
				}
			}
		})
	}
}

// TestDirect builds an HTTP server with its client, and has both ends direct.
func TestDirect(t *testing.T) {
	s := testlab.StartBroker(t)
	program := buildProgram(t, copyTree(t, "web"))
	startWeb(t, program, "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path())
	eventuallyDirect(t, s)
	b, err := Explain(program)
	if err != nil || b.With == "" || !strings.HasPrefix(b.String(), "direct sockets: built with go1.") {
		t.Errorf("explain: %v, %v", b, err)
	}
}

package exntun

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/internal/clitest"
	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

var update = flag.Bool("update", false, "write the golden files anew")

// programEnv makes the test binary the program exn-tun.
const programEnv = "EXN_TUN_TEST_PROGRAM"

func TestMain(m *testing.M) {
	// exn-tun starts /proc/self/exe as its worker, and that is this binary.
	isWorker := len(os.Args) == 2 && os.Args[1] == tcpbench.WorkerCommand
	if isWorker || os.Getenv(programEnv) != "" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	leaktest.Main(m)
}

// buffer is a bytes.Buffer for several goroutines, which calls onText once it
// contains text.
type buffer struct {
	mu     sync.Mutex
	b      bytes.Buffer
	text   string
	onText func()
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.b.Write(p)
	if b.onText != nil && strings.Contains(b.b.String(), b.text) {
		b.onText()
		b.onText = nil
	}
	return n, err
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// run runs exn-tun in this process.
func run(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, err buffer
	status = Run(ctx, args, &out, &err)
	return status, out.String(), err.String()
}

// programCommand returns exn-tun as a process of its own.
func programCommand(args ...string) (cmd *exec.Cmd, stdout, stderr *buffer) {
	cmd = exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	stdout, stderr = new(buffer), new(buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// leavesNothing fails the test if it leaves descriptors, processes or goroutines
// behind. The namespaces have no name (TestRootCommandReaches), so it is
// descriptors and processes that they could outlast the test by. Call it first.
func leavesNothing(t *testing.T) {
	t.Helper()
	netnstest.CheckFDs(t)
	before := childProcesses() // of an earlier test, which has said so
	t.Cleanup(func() {
		left := slices.DeleteFunc(childProcesses(), func(pid int) bool { return slices.Contains(before, pid) })
		if len(left) > 0 {
			t.Errorf("processes left behind: %v", left)
		}
		leaktest.None(t)
	})
}

// golden compares got with the file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	clitest.Golden(t, *update, name, got)
}

// fits fails the test if a line of text is wider than a table may be.
func fits(t *testing.T, text string) {
	t.Helper()
	clitest.Fits(t, tableWidth, text)
}

// oneLineOf fails the test unless text is one line that contains want.
func oneLineOf(t *testing.T, text, want string) {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.Contains(text, want) {
		t.Errorf("got %q, want one line with %q", text, want)
	}
}

// alive reports whether a process has an argument that is exactly arg.
func alive(t *testing.T, arg string) bool {
	t.Helper()
	return len(having(t, arg)) > 0
}

// having returns the folders in /proc of the processes that have an argument.
func having(t *testing.T, arg string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(line), "\x00"+arg+"\x00") {
			all = append(all, filepath.Dir(path))
		}
	}
	return all
}

// stopped says whether all processes that have an argument are stopped.
func stopped(t *testing.T, arg string) bool {
	t.Helper()
	all := having(t, arg)
	for _, dir := range all {
		stat, err := os.ReadFile(dir + "/stat")
		if _, state, _ := strings.Cut(string(stat), ") "); err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(all) > 0
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no success within the time: %s", what)
		}
	}
}

// sleepArg is a number of seconds that no other process sleeps, so that the
// sleeper can be found.
func sleepArg() string {
	return fmt.Sprintf("1000.%d%d", os.Getpid(), time.Now().UnixNano()%1_000_000)
}

// removeLink removes an interface of ns, as "ip link del" does.
func removeLink(ns *netns.NS, name string) error {
	return ns.Run(exec.Command("ip", "link", "del", name))
}

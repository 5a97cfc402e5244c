package dsbench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exnet/internal/clitest"
	"exnet/internal/netns"
)

var update = flag.Bool("update", false, "write the golden files anew")

// programEnv makes the test binary the program dsbench.
const programEnv = "DSBENCH_TEST_PROGRAM"

func TestMain(m *testing.M) {
	// What cmd/dsbench does. dsbench starts /proc/self/exe as its worker, and
	// that is this binary.
	isWorker := len(os.Args) == 2 && workerOf(os.Args[1]) != nil
	if isWorker || os.Getenv(programEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	if netns.InUserNS() {
		fmt.Fprintln(os.Stderr, "a test made dsbench start itself anew, which is for the program only")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// runProgram runs dsbench in this process; words are its arguments.
func runProgram(ctx context.Context, words string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = Run(ctx, strings.Fields(words), &out, &err)
	return status, out.String(), err.String()
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

// children returns the processes that process pid started and that still exist.
func children(t *testing.T, pid string) []string {
	t.Helper()
	lists, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

// countChildren returns a function that counts the processes that process pid has had
// as children, as far as it was called meanwhile.
func countChildren(t *testing.T, pid string) func() int {
	seen := map[string]bool{}
	return func() int {
		for _, p := range children(t, pid) {
			seen[p] = true
		}
		return len(seen)
	}
}

// noChildren fails the test if it leaves processes behind.
func noChildren(t *testing.T) {
	t.Helper()
	if left := children(t, "self"); len(left) > 0 {
		t.Errorf("processes left behind: %v", left)
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

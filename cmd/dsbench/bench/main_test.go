package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/clitest"
	"exnet/internal/leaktest"
	"exnet/internal/netns"
)

var update = flag.Bool("update", false, "write the golden files anew")

// programEnv makes the test binary the program dsbench.
const programEnv = "DSBENCH_TEST_PROGRAM"

func TestMain(m *testing.M) {
	// What cmd/dsbench does. dsbench starts /proc/self/exe as its worker, and
	// that is this binary.
	isWorker := len(os.Args) == 2 && paths.WorkerOf(os.Args[1]) != nil
	if isWorker || os.Getenv(programEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		context.AfterFunc(ctx, stop)
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGPIPE)
		os.Exit(Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	if netns.InUserNS() {
		fmt.Fprintln(os.Stderr, "a test made dsbench start itself anew, which is for the program only")
		os.Exit(1)
	}
	leaktest.Main(m)
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
	clitest.Fits(t, result.TableWidth, text)
}

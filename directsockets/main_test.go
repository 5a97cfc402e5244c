package directsockets_test

import (
	"fmt"
	"os"
	"testing"

	"exnet/directsockets"
	"exnet/internal/leaktest"
)

// TestMain is also the child processes of tests: see child_test.go.
func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(runChild(job))
	}
	if how := os.Getenv(requestsEnv); how != "" {
		if err := runRequests(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if n := os.Getenv(udpReaderEnv); n != "" {
		if err := runUDPReader(n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The process's own client, that of Dial and Listen, finds no broker: tests have
	// theirs.
	os.Setenv("EXNET_BROKER", "/nonexistent/ds.sock")
	leaktest.Main(tests{m})
}

type tests struct{ m *testing.M }

func (t tests) Run() int {
	code := t.m.Run()
	directsockets.CloseProcess()
	return code
}

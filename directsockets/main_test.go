package directsockets_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the child processes of tests: see child_test.go.
func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(runChild(job))
	}
	goleak.VerifyTestMain(m)
}

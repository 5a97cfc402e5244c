package exngo

import (
	"bytes"
	"strings"
	"testing"

	"exnet/internal/clitest"
)

func TestCommands(t *testing.T) { clitest.Tree(t, newRoot(), 82) }

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args           string
		status         int
		stdout, stderr string
	}{
		{"", 2, "", "Usage: exn-go COMMAND"},
		{"-h", 0, "\n  build       go build, with direct sockets\n", ""},
		{"--version", 0, "exn-go ", ""},
		{"mend", 2, "", `exn-go: unknown command "mend": choose from build, `},
		{"biuld", 2, "", "did you mean build?"},
		{"explain", 2, "", "exn-go explain: name a binary (see exn-go explain -h)\n"},
		{"explain /no/such", 1, "", "/no/such"},
		{"env now", 2, "", `unexpected argument "now"`},
	} {
		var stdout, stderr bytes.Buffer
		status := Run(strings.Fields(c.args), &stdout, &stderr)
		if status != c.status || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: status %d, %q, %q", c.args, status, &stdout, &stderr)
		}
	}
}

package exntun

import (
	"strconv"
	"strings"
	"testing"

	"exnet/internal/cli"
)

func TestLNetSelftest(t *testing.T) {
	for _, c := range []struct {
		args string
		rows []string // test and bytes, with the threads between them
	}{
		{"--test ping --threads 3", []string{"ping 3 -"}},
		{"--test read --threads 2 --size 64k --full", []string{"brw read 2 65536"}},
		{"--test write --size 8k", []string{"brw write 1 8192", "brw write 2 8192", "brw write 4 8192", "brw write 8 8192",
			"brw write 16 8192", "brw write 32 8192", "brw write 64 8192"}},
		{"--test read --threads 5 --immediate 100", []string{"brw read 5 4096", "brw read 5 8192", "brw read 5 16384", "brw read 5 32768",
			"brw read 5 65536", "brw read 5 131072", "brw read 5 262144", "brw read 5 524288", "brw read 5 1048576"}},
	} {
		status, stdout, stderr := run(t.Context(), append([]string{"lnet-selftest", "--duration", "1ms"}, strings.Fields(c.args)...)...)
		if status != cli.ExitOK || stderr != "" {
			t.Fatalf("%s: status %d, %s", c.args, status, stderr)
		}
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if len(lines) != 1+len(c.rows) {
			t.Fatalf("%s:\n%s", c.args, stdout)
		}
		for i, line := range lines[1:] {
			f := strings.Fields(line)
			n := len(f) - 2 // RPC/s, MB/s
			rate, err := strconv.Atoi(f[n])
			if got := strings.Join(f[:n], " "); got != c.rows[i] || err != nil || rate == 0 {
				t.Errorf("%s: %q, want %s", c.args, line, c.rows[i])
			}
			size, _ := strconv.Atoi(f[n-1])
			if mb, _ := strconv.ParseFloat(f[n+1], 64); size > 0 && (mb < float64(rate)*float64(size)/1e6-1 || mb > float64(rate+1)*float64(size)/1e6+1) {
				t.Errorf("%s: %q: the rates differ", c.args, line)
			}
		}
	}
	if n := len((lnetOptions{}).testSpecs(lnetTests["all"])); n != 7+2*(7+9) {
		t.Errorf("%d rows by default", n)
	}
	for args, want := range map[string]string{
		"--test pong": `--test "pong": use ping, read, write or all`, "--size 4095": "--size: 4095 is not between", "--threads 65": "--threads: use a number from 1 to 64",
	} {
		status, stdout, stderr := run(t.Context(), append([]string{"lnet-selftest"}, strings.Fields(args)...)...)
		if status != cli.ExitUsage || stdout != "" {
			t.Errorf("%s: status %d, %q", args, status, stdout)
		}
		oneLineOf(t, stderr, want)
	}
}

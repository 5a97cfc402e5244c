package rules

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const childEnv = "RULES_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		p := FromEnvironment(os.Stderr)
		var words []string
		for _, addr := range []string{"127.0.0.1:80", "10.2.0.1:80", "[::1]:81"} {
			a, not := p.Decide(Client, netip.MustParseAddrPort(addr), false)
			if not {
				words = append(words, "not-included")
			} else {
				words = append(words, a.String())
			}
		}
		os.Stdout.WriteString(strings.Join(words, " "))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFromEnvironment runs the test's binary by other names, with variables.
func TestFromEnvironment(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	const any = " * 00000000000000000000000000000000 0 80 80"
	own := filepath.Base(exe)
	for _, tt := range []struct {
		name, run, rules, loopback, want, log string
	}{
		{"nothing", exe, "", "", "not-included direct not-included", ""},
		{"loopback", exe, "", "1", "direct direct direct", ""},
		{"loopback 0", exe, "", "0", "not-included direct not-included", ""},
		{"tcp", exe, "t *" + any, "1", "tcp tcp direct", ""},
		{"a rule includes", exe, "d *" + any, "", "direct direct not-included", ""},
		{"other program", exe, "t other*" + any, "1", "direct direct direct", ""},
		{"own name", exe, "t " + own + any, "1", "tcp tcp direct", ""},
		{"the link's name", link, "t linked" + any, "1", "tcp tcp direct", ""},
		{"the file's name", link, "t " + own + any, "1", "tcp tcp direct", ""},
		{"not the link's", exe, "t linked" + any, "1", "direct direct direct", ""},
		{"malformed", exe, "nonsense", "1", "tcp tcp tcp", "malformed"},
		{"too long", exe, strings.TrimSuffix(strings.Repeat("t a"+any+";", 400), ";"), "1", "tcp tcp tcp", "malformed"},
	} {
		cmd := exec.Command(tt.run)
		cmd.Args[0] = "a name of its own"
		cmd.Env = []string{childEnv + "=1", Env + "=" + tt.rules, EnvLoopback + "=" + tt.loopback}
		var log strings.Builder
		cmd.Stderr = &log
		out, err := cmd.Output()
		if err != nil || string(out) != tt.want || !strings.Contains(log.String(), tt.log) || tt.log == "" && log.Len() > 0 {
			t.Errorf("%s: %q, %v, %q; want %q", tt.name, out, err, &log, tt.want)
		}
	}
}

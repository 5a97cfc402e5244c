package exntun

import (
	"exnet/internal/cli"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keys runs exn-tun key in dir and returns what it prints.
func keys(t *testing.T, args ...string) string {
	t.Helper()
	status, stdout, stderr := run(t.Context(), append([]string{"key"}, args...)...)
	if status != cli.ExitOK || stderr != "" {
		t.Fatalf("key %v: status %d, %s", args, status, stderr)
	}
	return stdout
}

func TestKey(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	keys(t, "ca", "--fabric", "lab", "--out", at("ca"))
	keys(t, "node", "--fabric", "lab", "--node", "1", "--ca", at("ca"), "--out", at("one"))
	keys(t, "node", "--node", "2", "--out", at("two.key"))
	for name, mode := range map[string]os.FileMode{"ca.key": 0o600, "one.key": 0o600, "two.key": 0o600, "ca.crt": 0o644, "two.crt": 0o644} {
		if st, err := os.Stat(at(name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	shown := keys(t, "show", at("one.crt"), at("two.crt"), at("ca.crt"))
	lines := strings.Split(shown, "\n")
	for i, want := range []string{"signed by the authority of fabric lab", "signed by itself", "the authority of fabric lab"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s, want %s", i, lines[i], want)
		}
	}
	print := strings.Fields(lines[1])[2]
	if got := keys(t, "sign", "--ca", at("ca"), "--days", "30", at("two.crt")); !strings.Contains(got, print) {
		t.Errorf("another key was signed: %s, not %s", got, print)
	}
	if got := keys(t, "show", at("two.crt")); !strings.HasPrefix(got, "node 2 "+print) || !strings.Contains(got, "signed by the authority of fabric lab") {
		t.Error(got)
	}

	if err := os.Chmod(at("ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"", cli.ExitUsage, "say what to do: ca, node, sign, show"},
		{"make", cli.ExitUsage, `unknown command "make": choose from ca, node, sign, show`},
		{"singn", cli.ExitUsage, "did you mean sign?"},
		{"ca", cli.ExitUsage, "--output is missing"},
		{"node --out x", cli.ExitUsage, "--node is missing"},
		{"node --node 65536 --out x", cli.ExitUsage, "use a number from 0 to 65535"},
		{"node --fabric a/b --out x", cli.ExitUsage, "letters"},
		{"ca --out x y", cli.ExitUsage, `unexpected argument "y"`},
		{"ca --out x --days 0", cli.ExitUsage, "use a number from 1"},
		{"sign x", cli.ExitUsage, "--ca is missing"},
		{"show", cli.ExitUsage, "name one or more"},
		{"ca --out " + at("two"), cli.ExitFailure, "already exists"},
		{"sign --ca " + at("ca") + " " + at("one.crt"), cli.ExitFailure, "others may read " + at("ca.key") + " (mode 0644): chmod 600"},
		{"node --node 3 --ca " + at("one") + " --out " + at("three"), cli.ExitFailure, "cannot sign for"},
		{"node --node 3 --ca " + at("none") + " --out " + at("three"), cli.ExitFailure, "--ca: " + at("none.key") + " does not exist: make it with exn-tun key ca"},
		{"sign --ca " + at("none") + " " + at("one.crt"), cli.ExitFailure, "--ca: " + at("none.key") + " does not exist: make it with exn-tun key ca"},
		{"show " + at("none"), cli.ExitFailure, "no such file"},
		{"show " + dir, cli.ExitFailure, "no such file"},
	} {
		status, stdout, stderr := run(t.Context(), append([]string{"key"}, strings.Fields(c.args)...)...)
		if status != c.status || stdout != "" {
			t.Errorf("%s: status %d, want %d; %s", c.args, status, c.status, stdout)
		}
		oneLineOf(t, stderr, c.want)
	}
	status, stdout, _ := run(t.Context(), "key", "-h")
	if status != cli.ExitOK {
		t.Errorf("help: status %d", status)
	}
	fits(t, stdout)
}

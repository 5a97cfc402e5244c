package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeDebian puts programs of that name before those of the host: all packages but curl and make
// are installed, curl can be had, and make cannot.
func fakeDebian(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"dpkg-query": `for p; do :; done
case $p in curl|make) [ -e "$DIR/has-$p" ] || exit 1;; esac
echo install ok installed`,
		"apt-get": `echo "$1" >>"$DIR/calls"
for p; do [ "$p" != make ] || exit 1; done
for p; do [ "$p" != curl ] || touch "$DIR/has-curl"; done`,
		"sleep": "",
		"sudo":  `exec "$@"`,
	} {
		text = "#!/bin/sh\nDIR='" + dir + "'\n" + text + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// install runs install.sh and returns its status and what it says.
func install(t *testing.T, args ...string) (int, string) {
	t.Helper()
	out, err := exec.Command("./install.sh", args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// What is missing is installed, or with --no-install only named; what cannot be had keeps nothing
// else away.
func TestInstall(t *testing.T) {
	dir := fakeDebian(t)
	if code, out := install(t, "--no-install"); code != 1 || !strings.Contains(out, "apt-get install curl make") {
		t.Errorf("--no-install: %d, %s", code, out)
	}
	if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err == nil {
		t.Errorf("--no-install calls apt-get: %s", calls)
	}
	if code, out := install(t, "--noinstall"); code != 2 || !strings.Contains(out, "unknown argument") {
		t.Errorf("--noinstall: %d, %s", code, out)
	}
	if code, out := install(t); code != 1 || !strings.HasSuffix(out, "cannot be had: make\n") {
		t.Errorf("%d, %s", code, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "has-make"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--no-install"}, nil} {
		if code, out := install(t, args...); code != 0 || out != "" {
			t.Errorf("%v with all installed: %d, %s", args, code, out)
		}
	}
}

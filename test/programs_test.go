package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// debianPackages names the package of each program that the tests run.
func debianPackages() map[string]string {
	return map[string]string{
		"curl":            "curl",
		"ip":              "iproute2",
		"iperf3":          "iperf3",
		"nc":              "netcat-openbsd",
		"ping":            "iputils-ping",
		"python3":         "python3",
		"redis-benchmark": "redis-tools",
		"redis-cli":       "redis-tools",
		"redis-server":    "redis-server",
		"ssh":             "openssh-client",
		"ssh-keygen":      "openssh-client",
		"sshd":            "openssh-server",
		"tcpdump":         "tcpdump",
		"traceroute":      "traceroute",
		"unshare":         "util-linux",
	}
}

// need skips the test if a program is not installed, or fails it where that
// would hide something.
func need(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if programPath(name) != "" {
			continue
		}
		if os.Getenv("CI") == "true" || os.Getenv("EXN_E2E_REQUIRE") != "" {
			t.Fatalf("%s is not installed: apt-get install %s", name, debianPackages()[name])
		}
		t.Skipf("%s is not installed: apt-get install %s", name, debianPackages()[name])
	}
}

// programPath returns the full path of a program (sshd wants to be called by
// it), or "". Not every user has the sbin directories in PATH.
func programPath(name string) string {
	path, _ := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path == "" {
			path, _ = exec.LookPath(filepath.Join(dir, name))
		}
	}
	return path
}

// What need tells the user to install is what .ci/run installs.
func TestPackages(t *testing.T) {
	text, err := os.ReadFile("packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"),
		func(line string) bool { return strings.HasPrefix(line, "#") })
	used := slices.Compact(slices.Sorted(maps.Values(debianPackages())))
	if diff := cmp.Diff(used, listed); diff != "" {
		t.Errorf("packages.txt (-used +listed):\n%s", diff)
	}
}

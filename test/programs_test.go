package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"exnet/internal/netns/netnstest"

	"github.com/google/go-cmp/cmp"
)

// debianPackages names the package of each program that the tests run.
func debianPackages() map[string]string {
	return map[string]string{
		"ccache":           "ccache", // of check.sh, for the tests in C
		"clang":            "clang",  // for MemorySanitizer, whose library is in the next one
		"libclang_rt.msan": "libclang-rt-14-dev",
		"cppcheck":         "cppcheck", // of check.sh, as is shellcheck
		"shellcheck":       "shellcheck",
		"curl":             "curl",
		"fi_info":          "libfabric-bin",
		"g++":              "g++", // of the tests of directsockets/preload
		"gcc":              "gcc",
		"git":              "git", // of TestRename and the ssh tests, which skip without it
		"ip":               "iproute2",
		"arping":           "arping",
		"dhclient":         "isc-dhcp-client",
		"dnsmasq":          "dnsmasq-base",
		"iperf3":           "iperf3",
		"nbdcopy":          "libnbd-bin", // of the tests of memory, as the next two
		"nbdkit":           "nbdkit",
		"nbdkit-plugin.h":  "nbdkit-plugin-dev",
		"make":             "make", // of the tests of directsockets/preload
		"mpicc.mpich":      "libmpich-dev",
		"mpicc.openmpi":    "libopenmpi-dev",
		"mpirun.mpich":     "mpich",
		"mpirun.openmpi":   "openmpi-bin",
		"nc":               "netcat-openbsd",
		"nft":              "nftables", // of other packages' tests
		"nginx":            "nginx-light",
		"perl":             "perl",
		"ping":             "iputils-ping",
		"python3":          "python3",
		"pvm":              "pvm",
		"pvmd":             "pvm",
		"pvm3.h":           "pvm-dev", // no program
		"redis-benchmark":  "redis-tools",
		"redis-cli":        "redis-tools",
		"redis-server":     "redis-server",
		"jq":               "jq",
		"musl-gcc":         "musl-tools",       // the preload library's tests
		"networkx":         "python3-networkx", // those of exn-sim, no program
		"rdma/fabric.h":    "libfabric-dev",    // those of fabric/link/ofi, no program
		"rsync":            "rsync",
		"strace":           "strace",
		"setpriv":          "util-linux",
		"ssh":              "openssh-client",
		"stdio.h":          "libc6-dev", // for gcc, no program
		"ssh-keygen":       "openssh-client",
		"sshd":             "openssh-server",
		"stress-ng":        "stress-ng", // cmd/exn-mem/exnmem runs it
		"tcpdump":          "tcpdump",
		"test.test_socket": "libpython3.11-testsuite", // CPython's tests, no program
		"traceroute":       "traceroute",
		"unshare":          "util-linux",
		"wrk":              "wrk",
		"apt-ftparchive":   "apt-utils",
		"bash_completion":  "bash-completion", // for bash, no program
		"fish":             "fish",
		"gpg":              "gpg",
		"gpg-agent":        "gpg-agent",
		"zsh":              "zsh",
	}
}

// need skips the test unless it may make namespaces and the programs that it
// runs are installed; where a skip would hide something, it fails without them.
func need(t *testing.T, names ...string) {
	t.Helper()
	netnstest.Require(t)
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(programPath(name)); err != nil {
			missing = append(missing, debianPackages()[name])
		}
	}
	switch {
	case len(missing) == 0:
	case os.Getenv("CI") == "true" || os.Getenv("EXN_E2E_REQUIRE") != "":
		t.Fatalf("a program is missing: apt-get install %s", strings.Join(missing, " "))
	default:
		t.Skipf("a program is missing: apt-get install %s", strings.Join(missing, " "))
	}
}

// programPath returns the full path of a program (sshd wants to be called by
// it). Not every user has the sbin directories in PATH.
func programPath(name string) string {
	for _, path := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/sbin", name)} {
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	return name
}

// What need tells the user to install is what .ci/run installs.
func TestPackages(t *testing.T) {
	text, err := os.ReadFile("packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(string(text), "# Those of test/suites.")
	listed := slices.DeleteFunc(strings.Split(strings.TrimSpace(own), "\n"),
		func(line string) bool { return strings.HasPrefix(line, "#") })
	slices.Sort(listed)
	used := slices.Compact(slices.Sorted(maps.Values(debianPackages())))
	if diff := cmp.Diff(used, listed); diff != "" {
		t.Errorf("packages.txt (-used +listed):\n%s", diff)
	}
	short, _, _ := strings.Cut(own, "# Those of the full form:")
	if n := len(regexp.MustCompile(`(?m)^[a-z]`).FindAllString(short, -1)); n == 0 || n > 10 {
		t.Errorf("the short form of check.sh installs %d packages, want at most ten", n)
	}
}

package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"exnet/internal/longtest"
)

var alpine = flag.String("alpine", "", "`FILE` the .tar.gz of an Alpine minirootfs: the library's tests in C, and the tarball of release.sh, run in it; minutes")

var minimal = flag.String("minimal", "", "`DIR` a minimal Debian, which debootstrap makes there if it is not there yet: the package is installed and removed in it, and README's commands run with Go alone; minutes")

// inMinimal runs a command in the minimal Debian.
func inMinimal(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "testdata/packages/minimal.sh", append([]string{*minimal}, argv...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v", argv, err)
	}
	t.Logf("%s", out)
	return string(out)
}

// The package of ./release.sh comes from a repository of packaging/apt.sh and needs no compiler,
// and nothing is left of it when it is removed.
func TestRootPackage(t *testing.T) {
	longtest.Skip(t)
	if *minimal == "" {
		t.Skip("it makes a minimal Debian: name a folder by -minimal")
	}
	dir := filepath.Join(*minimal, "deb")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	inMinimal(t, "true")
	outputOf(t, "..", "./release.sh", "--version", "0.0.1", "--arch", runtime.GOARCH, dir)
	outputOf(t, "..", "packaging/apt.sh", "--key", filepath.Join(t.TempDir(), "key.asc"), dir, filepath.Join(dir, "apt"))
	outputOf(t, ".", "cp", "testdata/packages/deb.sh", dir)
	if out := inMinimal(t, "/deb/deb.sh"); !strings.HasSuffix(out, "ok\n") {
		t.Error("it has not come to its end")
	}
}

// On a Debian with Go and nothing else README's first commands build what there is, bring up exn0
// and run programs, and what the check begins with installs what tests need.
func TestRootFresh(t *testing.T) {
	longtest.Skip(t)
	if *minimal == "" {
		t.Skip("it makes a minimal Debian: name a folder by -minimal")
	}
	t.Setenv("MINIMAL_NET", "host")
	inMinimal(t, "true")
	outputOf(t, ".", "mkdir", "-p", filepath.Join(*minimal, "usr/local"))
	for from, to := range map[string]string{outputOf(t, ".", "go", "env", "GOROOT"): "usr/local/go", "..": "src"} {
		to = filepath.Join(*minimal, to)
		outputOf(t, ".", "rm", "-rf", to)
		outputOf(t, ".", "cp", "-a", strings.TrimSpace(from), to)
	}
	if out := inMinimal(t, "sh", "-c", "cd /src && GOBIN=/opt/bin go install ./cmd/... && /opt/bin/exn-tun demo --verbose"); !strings.Contains(out, "perl and bash: 1 MiB each") {
		t.Error("no programs have run")
	}
	inMinimal(t, "sh", "-c", "cd /src && ! ./check.sh --no-install")
	inMinimal(t, "sh", "-c", "cd /src && ./check.sh")
}

// In an Alpine, whose C library is musl, the library's tests in C pass, and so do the commands of
// the tarball: nothing is built there.
func TestRootAlpine(t *testing.T) {
	longtest.Skip(t)
	if *alpine == "" {
		t.Skip("it wants an Alpine: name its minirootfs by -alpine")
	}
	dir := t.TempDir()
	root, build, dist := filepath.Join(dir, "root"), filepath.Join(dir, "build"), filepath.Join(dir, "dist")
	outputOf(t, ".", "mkdir", root)
	outputOf(t, ".", "tar", "xzf", *alpine, "-C", root)
	in, err := filepath.Abs("testdata/packages/alpine.sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", outputOf(t, "../directsockets/preload", "make", "-s", "-j2", "LIBC=musl", "BUILD="+build, "RUN="+in+" "+root, "all", "units"))
	outputOf(t, "..", "./release.sh", "--version", "0.0.1", "--arch", runtime.GOARCH, dist)
	tarball := "exnet-0.0.1-linux-" + runtime.GOARCH
	outputOf(t, dist, "tar", "xzf", tarball+".tar.gz")
	out := outputOf(t, "testdata/packages", in, root, "sh", "tarball.sh", filepath.Join(dist, tarball))
	if t.Logf("%s", out); !strings.HasSuffix(out, "ok\n") {
		t.Error("it has not come to its end")
	}
}

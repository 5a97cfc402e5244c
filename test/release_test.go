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
	"exnet/test/testlab"
)

var release = flag.Bool("release", false, "build the packages twice, in two clones of the checkout, and compare them, and run the image of packaging/Containerfile, which wants podman and crun; minutes")

// Two runs of ./release.sh for one commit, in folders of other names and times, make the same
// bytes: the packages, the lists of modules, and the checksums, which are those of the files.
func TestRelease(t *testing.T) {
	longtest.Skip(t)
	if !*release {
		t.Skip("it builds all packages twice: ask for it by -release")
	}
	top := t.TempDir()
	var sums []string
	for _, name := range []string{"one", "another/folder"} {
		src, dist := filepath.Join(top, name), filepath.Join(top, "dist", name)
		outputOf(t, "..", "git", "clone", "-q", ".", src)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask "$0" && exec ./release.sh --version 0.1.0 --arch "$1" "$2"`,
			map[bool]string{true: "022", false: "077"}[name == "one"], runtime.GOARCH, dist)
		cmd.Dir = src
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		outputOf(t, dist, "sha256sum", "-c", "--strict", "SHA256SUMS")
		b, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(b))
	}
	if sums[0] != sums[1] {
		t.Errorf("two runs differ:\n%s\n%s", sums[0], sums[1])
	}
	for _, kind := range []string{".deb", ".rpm", ".tar.gz", ".sbom.txt"} {
		if !strings.Contains(sums[0], kind+"\n") {
			t.Errorf("there is no %s:\n%s", kind, sums[0])
		}
	}

	t.Run("image", func(t *testing.T) {
		testlab.RequireTUN(t)
		for _, program := range []string{"podman", "crun"} {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip(err)
			}
		}
		tarball := "exnet-0.1.0-linux-" + runtime.GOARCH
		outputOf(t, top, "tar", "xzf", filepath.Join("dist/one", tarball+".tar.gz"))
		script, err := filepath.Abs("testdata/packages/image.sh")
		if err != nil {
			t.Fatal(err)
		}
		if out := outputOf(t, top, "unshare", "-m", script, filepath.Join(top, tarball)); !strings.HasSuffix(out, "ok\n") {
			t.Errorf("it has not come to its end:\n%s", out)
		}
	})
}

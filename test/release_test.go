package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var release = flag.Bool("release", false, "build the packages twice, in two clones of the checkout, and compare them; minutes")

// Two runs of ./release.sh for one commit, in folders of other names and times, make the same bytes:
// the packages, the lists of modules, and the checksums, which are those of the files.
func TestRelease(t *testing.T) {
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
}

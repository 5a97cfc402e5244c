package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"exnet/internal/longtest"
)

// A repository of packaging/apt.sh, behind a web server: apt takes the package from it, signed or
// trusted, and refuses it when its list was changed, or another key has signed it.
func TestAptRepository(t *testing.T) {
	longtest.Skip(t)
	for _, program := range []string{"apt-get", "apt-ftparchive", "dpkg-deb", "gpg", "gpg-agent"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	top := t.TempDir()
	pkg, dist := filepath.Join(top, "pkg"), filepath.Join(top, "dist")
	for _, dir := range []string{filepath.Join(pkg, "DEBIAN"), dist} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	control := "Package: exnet\nVersion: 0.1.0\nArchitecture: " + runtime.GOARCH + "\nMaintainer: nobody <nobody@localhost>\nDescription: for a test\n"
	if err := os.WriteFile(filepath.Join(pkg, "DEBIAN/control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	outputOf(t, top, "dpkg-deb", "--root-owner-group", "-b", pkg, filepath.Join(dist, "exnet.deb"))
	script, err := filepath.Abs("../packaging/apt.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"signed", "again", "other", "changed", "plain"} {
		args := map[string][]string{"plain": {"--unsigned"}, "other": {"--key", "other.asc"}}[dir]
		outputOf(t, top, append(append([]string{script}, args...), "dist", dir)...)
	}
	signedBy := func(dir string) string { return "signed-by=" + filepath.Join(top, dir, "exnet.gpg") }
	if a, b := readAll(t, filepath.Join(top, "signed/exnet.gpg")), readAll(t, filepath.Join(top, "again/exnet.gpg")); a != b {
		t.Error("the second run has made another key")
	}
	list := filepath.Join(top, "changed/dists/stable/main/binary-"+runtime.GOARCH+"/Packages")
	outputOf(t, top, "sed", "-i", "s/for a test/forged/", list)
	outputOf(t, top, "gzip", "-9nkf", list)

	server := httptest.NewServer(http.FileServer(http.Dir(top)))
	t.Cleanup(server.Close)
	for _, c := range []struct{ name, dir, option, fails string }{
		{"signed", "signed", signedBy("signed"), ""},
		{"the same key", "again", signedBy("signed"), ""},
		{"trusted", "plain", "trusted=yes", ""},
		{"another key", "other", signedBy("signed"), "NO_PUBKEY"},
		{"changed", "changed", signedBy("signed"), "unexpected size|Hash Sum mismatch"},
		{"unsigned", "plain", signedBy("signed"), "is not signed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := aptDownload(t, "deb ["+c.option+"] "+server.URL+"/"+c.dir+" stable main\n")
			switch {
			case c.fails == "" && err != nil:
				t.Errorf("%v\n%s", err, out)
			case c.fails != "" && (err == nil || !regexp.MustCompile(c.fails).MatchString(out)):
				t.Errorf("%v, want %q:\n%s", err, c.fails, out)
			}
		})
	}
}

// aptDownload has an apt with this one source, and with folders of its own, fetch exnet.
func aptDownload(t *testing.T, source string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "parts"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "list"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	options := []string{
		"-o", "Dir::Etc::SourceList=" + dir + "/list", "-o", "Dir::Etc::SourceParts=" + dir + "/parts",
		"-o", "Dir::State::Lists=" + dir + "/lists", "-o", "Dir::Cache=" + dir + "/cache", "-o", "Dir::State::status=/dev/null",
		"-o", "APT::Sandbox::User=" + whoami(t), "-o", "APT::Architecture=" + runtime.GOARCH, "-o", "APT::Architectures=" + runtime.GOARCH,
		"-o", "Acquire::http::Proxy=DIRECT", "-o", "Acquire::Languages=none",
	}
	var said strings.Builder
	for _, args := range [][]string{{"update"}, {"download", "exnet"}} {
		cmd := exec.CommandContext(t.Context(), "apt-get", append(options, args...)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, &said, &said, append(os.Environ(), "LC_ALL=C")
		if err := cmd.Run(); err != nil {
			return said.String(), err
		}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "exnet_0.1.0_*.deb")); len(found) != 1 {
		t.Errorf("%d packages, want 1:\n%s", len(found), said.String())
	}
	return said.String(), nil
}

func whoami(t *testing.T) string { return strings.TrimSpace(outputOf(t, ".", "id", "-un")) }

func readAll(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/longtest"
)

// lastRelease is the commit of the last release, whose library, broker and node have to work
// together with those of this tree (SPEC 6). It is the last one in which HELLO said one version.
const lastRelease = "e2f788a82105f6bcfd860c725bd6759021261d78"

// buildLastRelease builds exn-run of the last release, and exn-tun beside it.
func buildLastRelease(t *testing.T) string {
	t.Helper()
	git := func(argv ...string) ([]byte, error) {
		return exec.Command("git", append([]string{"-c", "safe.directory=*"}, argv...)...).Output()
	}
	if _, err := git("cat-file", "-e", lastRelease+"^{commit}"); err != nil {
		t.Skipf("the history does not reach back to the last release, %.8s", lastRelease)
	}
	dir := sharedDir(t)
	source, exnRun := filepath.Join(dir, "source"), filepath.Join(dir, "exn-run")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "source.tar")
	for _, argv := range [][]string{
		{"git", "-c", "safe.directory=*", "-C", strings.TrimSpace(string(root)), "archive", "-o", files, lastRelease},
		{"tar", "-x", "-f", files, "-C", source},
		{"go", "-C", source, "build", "-trimpath", "-buildvcs=false", "-o", dir + "/", "./cmd/exn-run", "./cmd/exn-tun"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return exnRun
}

// Programs with the library of the last release and with this one have direct connections to each
// other, by a broker of either, as while a host is upgraded.
func TestRootLastRelease(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "iperf3", "git", "tar")
	last := buildLastRelease(t)
	now, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, serve, ask string }{ // the server's exn-run starts the broker
		{"the last release's broker", last, now},
		{"this broker", now, last},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			l := newLocal(t, true)
			l.env = []string{awaitBroker}
			l.exnRun = tt.serve
			s := l.serve(t, iperfPort, "iperf3", "-s", "-p", iperfPort)
			for _, reverse := range []string{"--get-server-output", "-R"} {
				l.exnRun = tt.ask
				l.run(t, "iperf3", "-c", "127.0.0.1", "-p", iperfPort, "-n", "64M", reverse)
			}
			s.end(t)
			l.check(t, expect{"iperf3", false, 2, leastDirect}, expect{"iperf3", true, 2, leastDirect})
		})
	}
}

// Nodes of the last release and of this one carry direct sockets to each other, as while the hosts
// of a fabric are upgraded one after the other.
func TestRootLastReleaseNode(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3", "git", "tar")
	last := filepath.Join(filepath.Dir(buildLastRelease(t)), "exn-tun")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	now := c.args[0][0]
	for _, exnTun := range [][2]string{{last, now}, {now, last}, {now, now}} {
		for i, path := range exnTun {
			if c.args[i][0] != path {
				c.nodes[i].stop()
				c.args[i][0] = path
				c.up(i)
			}
		}
		c.linked()
		c.whole("10.2.0.2")
	}
}

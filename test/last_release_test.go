package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// lastRelease is the commit of the last release, whose library, broker and node have to work
// together with those of this tree (SPEC 6). It is the last one in which HELLO said one version.
const lastRelease = "e2f788a82105f6bcfd860c725bd6759021261d78"

// replaceable is the commit of the release that TestRootUpgrade begins with. Another process can
// replace its nodes (exn-tun up --replace).
const replaceable = "2ce83175"

// buildRelease builds exn-run of the release of a commit, and exn-tun and other packages beside it.
func buildRelease(t *testing.T, commit string, packages ...string) string {
	t.Helper()
	git := func(argv ...string) ([]byte, error) {
		return exec.Command("git", append([]string{"-c", "safe.directory=*"}, argv...)...).Output()
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("the history does not reach back to %.8s", commit)
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
	build := []string{"go", "-C", source, "build", "-trimpath", "-buildvcs=false", "-o", dir + "/", "./cmd/exn-run", "./cmd/exn-tun"}
	for _, argv := range [][]string{
		{"git", "-c", "safe.directory=*", "-C", strings.TrimSpace(string(root)), "archive", "-o", files, commit},
		{"tar", "-x", "-f", files, "-C", source},
		append(build, packages...),
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
	last := buildRelease(t, lastRelease)
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
	last := filepath.Join(filepath.Dir(buildRelease(t, lastRelease)), "exn-tun")
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

// The agent, the library's file and two nodes are replaced by those of this tree, and back, while
// programs of the last release exchange data. Nothing is lost, no connection ends, and new
// connections of old and new programs are direct each time.
func TestRootUpgrade(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "bc", "git", "ip", "python3", "ss", "tar", "unshare")
	last := filepath.Dir(buildRelease(t, replaceable, "./test/numbered/direct"))
	now, err := testlab.Build("exn-tun", "exn-run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(now)
	if out, err := exec.Command("go", "build", "-o", now+"/", "exnet/test/numbered/direct").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rounds := "1"
	if longtest.All() {
		rounds = "10"
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "-nmpf", "--mount-proc", "--kill-child", script(t, "upgrade.sh"), last, now, rounds).CombinedOutput()
	if strings.Contains(string(out), "needs BPF and cgroup2") {
		t.Skip(string(out))
	}
	if err != nil || !strings.HasSuffix(string(out), "\nupgraded\n") {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

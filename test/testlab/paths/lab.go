package paths

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
	"exnet/node/rpc/c"
	"exnet/ports/lib"
	"exnet/test/numbered"
	"exnet/test/testlab"
	"exnet/test/testlab/testnode"
)

// lab is a place that is up.
type lab struct {
	t     *testing.T
	bin   string // with all programs
	o     Options
	place place

	ownNS   *netns.NS
	spaces  [2]*netns.NS // of the client's node and the server's; the same one without nodes
	dirs    [2]string    // of the nodes; "" without nodes
	nodes   [2]*testlab.Process
	servers map[string]*testlab.Process
	rows    int          // that have begun
	slow    atomic.Int32 // ends of this row that made no progress for Options.Slow
}

// buildPrograms builds all programs into a directory that goes with the test.
func buildPrograms(t *testing.T) string {
	t.Helper()
	testlab.RequireTUN(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip(err)
	}
	dir, err := testlab.Build("exn-run", "exn-tun", "exn-go")
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err != nil {
		t.Fatal(err)
	}
	must := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	must("go", "build", "-o", filepath.Join(dir, string(goDirect)), "exnet/test/numbered/direct")
	must(filepath.Join(dir, "exn-go"), "build", "-o", filepath.Join(dir, string(exnGo)), "exnet/test/numbered/program")
	src := filepath.Join(dir, "src")
	if err := errors.Join(os.CopyFS(src, numbered.Sources), os.CopyFS(src, lib.Sources), os.CopyFS(src, c.Files)); err != nil {
		t.Fatal(err)
	}
	gcc := append([]string{"gcc", "-fno-strict-aliasing", "-I", src, "-I", filepath.Join(src, "include"), "-I", filepath.Join(src, "c")}, numbered.CFlags...)
	must(append(gcc, "-o", filepath.Join(dir, string(unchangedC)), filepath.Join(src, "c/numbered.c"))...)
	of, err := filepath.Glob(filepath.Join(src, "[crv]*[eao]/*.c")) // core, rma, velo
	if err != nil {
		t.Fatal(err)
	}
	must(slices.Concat(gcc, []string{"-o", filepath.Join(dir, string(portsC)), filepath.Join(src, "c/ports.c")}, of)...)
	// exn-run builds its library now, and not while somebody waits for a program.
	must(filepath.Join(dir, "exn-run"), "--print-env")
	return dir
}

// bringUp brings a place up.
func (l *lab) bringUp(p place) {
	l.t.Helper()
	l.place, l.servers = p, make(map[string]*testlab.Process)
	var err error
	if l.ownNS, err = netnstest.Here(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { l.ownNS.Close() })
	for i := range l.spaces {
		if l.spaces[i] = l.spaces[0]; i == 0 || p.nodes {
			l.spaces[i] = testlab.LoopbackNS(l.t)
		}
	}
	if !p.nodes {
		return
	}
	if p.hosts {
		end := func(i int) hostnet.VethEnd {
			a := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(1 + i)}), 24)
			return hostnet.VethEnd{NS: l.spaces[i], Name: "eth0", Config: hostnet.LinkConfig{MTU: 1500, Addrs: []netip.Prefix{a}}}
		}
		if err := hostnet.CreateVeth(end(0), end(1)); err != nil {
			l.t.Fatal(err)
		}
	}
	shared, keys := l.t.TempDir(), l.t.TempDir()
	if p.keys {
		l.runKey(keys, "ca", "--out", "ca")
	}
	for i := range l.dirs {
		n := strconv.Itoa(1 + i)
		l.dirs[i] = shared
		args := []string{"up", "--fair", "--node", n, "--addr", "10.2.0." + n + "/24", "--direct", fmt.Sprintf("fabric:%d-%d", relayPort, relayPort+99)}
		if p.hosts {
			l.dirs[i] = l.t.TempDir()
			args = append(args, "--listen", ":4791")
			if i == 1 {
				args = append(args, "--join", "10.9.0.1")
			}
		}
		if p.keys {
			l.runKey(keys, "node", "--node", n, "--ca", "ca", "--out", "node"+n)
			args = append(args, "--key", filepath.Join(keys, "node"+n+".key"), "--trust", filepath.Join(keys, "ca.crt"))
		}
		args = append(args, p.flags...)
		node := l.startProgram("node "+n, l.spaces[i], nil, append([]string{l.toolPath("exn-tun")}, append(args, "--dir", l.dirs[i])...)...)
		l.awaitLine(node, "is up")
		l.nodes[i] = node
	}
	if err := testlab.Await(l.checkLinked); err != nil {
		l.t.Fatal(err)
	}
}

// runKey runs exn-tun key.
func (l *lab) runKey(dir string, args ...string) {
	l.t.Helper()
	cmd := exec.Command(l.toolPath("exn-tun"), append([]string{"key"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("key %v: %v\n%s", args, err, out)
	}
}

func (l *lab) toolPath(name string) string { return filepath.Join(l.bin, name) }

// checkLinked fails until each node has linked the other one, by the place's link.
func (l *lab) checkLinked() error {
	for i, dir := range l.dirs {
		s, err := testnode.Status(dir, 1+i)
		if err != nil {
			return err
		}
		if len(s.Peers) != 1 || s.Peers[0].State != "up" {
			return fmt.Errorf("node %d: %+v", 1+i, s.Peers)
		}
		if got := s.Peers[0].Link; got != l.place.link {
			l.t.Fatalf("node %d has linked its peer by %q, not %q", 1+i, got, l.place.link)
		}
	}
	return nil
}

// startProgram starts a program in a namespace, until the test ends.
func (l *lab) startProgram(name string, ns *netns.NS, env []string, argv ...string) *testlab.Process {
	l.t.Helper()
	cmd := newCommand(env, argv...)
	p, err := testlab.StartProcess(name, cmd, func() error { return ns.Start(cmd) }, l.noteStall)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		// A node takes its interface and files with it, and a server ends with its input.
		_ = p.In.Close()
		_ = p.Signal(syscall.SIGTERM) // it may have ended
		if !p.Ended(hang) {
			p.Kill()
			l.t.Errorf("%s did not end", name)
		}
	})
	return p
}

func newCommand(env []string, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// awaitLine waits for a line of a program that has text in it, and returns it; other is
// called with each line before.
func (l *lab) awaitLine(p *testlab.Process, text string, other ...func(line string)) string {
	l.t.Helper()
	guard := l.killHung(p)
	defer guard.Stop()
	for line := range p.Lines {
		if strings.Contains(line, text) {
			return line
		}
		for _, f := range other {
			f(line)
		}
	}
	<-p.Done
	l.t.Fatalf("%s ended, or hung, before it said %q: %v\n%s", p.Name, text, p.Err, &p.Log)
	return ""
}

// sumCounter is a counter of both nodes.
func (l *lab) sumCounter(name string) (sum uint64) {
	l.t.Helper()
	for i, dir := range l.dirs {
		s, err := testnode.Status(dir, 1+i)
		if err != nil {
			l.t.Fatal(err)
		}
		found := false
		for _, c := range s.Counters {
			if c.Name == name {
				found, sum = true, sum+c.Value
			}
		}
		if !found {
			l.t.Fatalf("node %d has no counter %s", 1+i, name)
		}
	}
	return sum
}

// sentBytes is how many bytes the interface has sent, in both namespaces.
func (l *lab) sentBytes(name string) (sum uint64) {
	l.t.Helper()
	for _, ns := range slices.Compact(slices.Clone(l.spaces[:])) {
		if err := ns.Do(func() error {
			// proc_pid_net(5): name: 8 numbers of what was received, 8 of what was sent.
			text, err := os.ReadFile("/proc/thread-self/net/dev")
			for line := range strings.Lines(string(text)) {
				before, after, _ := strings.Cut(line, ":")
				if f := strings.Fields(after); strings.TrimSpace(before) == name && len(f) == 16 {
					n, err := strconv.ParseUint(f[8], 10, 64)
					sum += n
					return err
				}
			}
			return errors.Join(err, fmt.Errorf("no interface %s", name))
		}); err != nil {
			l.t.Fatal(err)
		}
	}
	return sum
}

// shareOf is a part of the bytes of a sum.
func shareOf(n uint64, s numbered.Sum) float64 {
	return math.Min(1, float64(n)/math.Max(1, float64(s.Bytes)))
}

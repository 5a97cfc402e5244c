package pressure

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/test/testlab"
	"exnet/test/testlab/testnode"
)

// built is what the tests run besides themselves.
var built struct {
	dir, tun, run, worker string
}

// build builds it, once.
var build = sync.OnceValue(func() error {
	dir, err := testlab.Build("exn-tun", "exn-run")
	built.dir = dir
	if err != nil {
		return err
	}
	built.tun, built.run, built.worker = filepath.Join(dir, "exn-tun"), filepath.Join(dir, "exn-run"), filepath.Join(dir, "worker")
	for _, argv := range [][]string{
		{"gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-I", "../../test/numbered/c", "-o", built.worker, "testdata/worker.c"},
		{built.run, "--", "true"}, // has it build its library
	} {
		if argv[0] == built.run && library() != nil {
			continue
		}
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", argv, err, out)
		}
	}
	return nil
})

// library has exn-run take another build of the library, such as one with sanitizers.
func library() []string {
	if path := os.Getenv("EXN_E2E_LIBRARY"); path != "" {
		return []string{"--library", path}
	}
	return nil
}

func removeBuilt() {
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
}

// lab is a fabric: a daemon for each node, in a process and a namespace of its own.
type lab struct {
	dir   string
	nodes []*node
}

type node struct {
	*process // the daemon
	lab      *lab
	addr     string
	ns       *netns.NS
	wrap     []string // command line before those of workers
}

// newLab brings up so many nodes, which go when the test ends. Then nothing of them
// may be left.
func newLab(t *testing.T, n int, flags ...string) *lab {
	t.Helper()
	netnstest.Require(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	netnstest.CheckFDs(t)
	l := &lab{dir: filepath.Join(t.TempDir(), "fabric")}
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range l.nodes {
			testlab.CheckNobodyIn(t, n.ns)
		}
		if left, err := os.ReadDir(l.dir); err != nil || len(left) > 1 { // the lock
			t.Errorf("the nodes have left %v, %v", left, err)
		}
	})
	for i := range n {
		l.nodes = append(l.nodes, &node{lab: l, addr: fmt.Sprintf("10.2.0.%d", i+1), ns: netnstest.New(t)})
	}
	for i, n := range l.nodes {
		n.start(t, append([]string{"--node", fmt.Sprint(i + 1)}, flags...)...)
	}
	for _, n := range l.nodes {
		n.wait(t)
	}
	return l
}

// start starts a node's daemon, without waiting for it.
func (n *node) start(t *testing.T, flags ...string) {
	t.Helper()
	argv := append([]string{built.tun, "up", "--dir", n.lab.dir, "--netns", n.ns.Path(), "--addr", n.addr + "/24"}, flags...)
	cmd := exec.Command(argv[0], argv[1:]...)
	n.process = newProcess(t, "node at "+n.addr, cmd, cmd.Start)
}

// wait waits until a daemon is up, and linked to all others.
func (n *node) wait(t *testing.T) {
	t.Helper()
	n.says(t, "exn0 is up")
	eventually(t, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		if up := testnode.Linked(s); up != len(n.lab.nodes)-1 {
			return fmt.Errorf("node %d has %d peers", s.Node, up)
		}
		sockets, err := n.sockets()
		if err == nil && sockets.Broker == "" {
			err = errors.New("no broker")
		}
		return err
	})
}

func (n *node) client() (*control.Client, error) {
	nodes, err := control.Nodes(n.lab.dir)
	if err != nil {
		return nil, err
	}
	for _, d := range nodes {
		for _, a := range d.Addrs {
			if a.Addr().String() == n.addr {
				return control.Dial(n.lab.dir, d)
			}
		}
	}
	return nil, fmt.Errorf("no node has %s", n.addr)
}

func (n *node) status() (*control.Status, error) {
	c, err := n.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status()
}

func (n *node) sockets() (*control.Sockets, error) {
	c, err := n.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Sockets()
}

// connections are a process's that are open, as the broker of its node shows them.
func (n *node) connections(t *testing.T, p *process) (all []connstats.Connection) {
	t.Helper()
	s, err := n.sockets()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Connections {
		if c.PID == p.PID() {
			all = append(all, c)
		}
	}
	return all
}

// direct is how many connections of a process are.
func (n *node) direct(t *testing.T, p *process) (direct int) {
	t.Helper()
	for _, c := range n.connections(t, p) {
		if c.Mode == connstats.ModeDirect.String() {
			direct++
		}
	}
	return direct
}

// wantDirect waits until so many connections of a process are direct, or more; it moves
// some bytes meanwhile.
func (n *node) wantDirect(t *testing.T, p *process, want int) {
	t.Helper()
	if p.kind == "tcp" {
		return
	}
	for end := time.Now().Add(hangTime); ; time.Sleep(50 * time.Millisecond) {
		got := n.direct(t, p)
		if got >= want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %d connections are direct, want %d, the others: %v", p.Name, got, want, n.whys(t, p))
		}
		p.tell(t, "round")
		p.expect(t, "round")
	}
}

// run starts a worker: kind is tcp, go, or c for the one under exn-run.
func (n *node) run(t *testing.T, kind string, args ...any) *process {
	t.Helper()
	var argv []string
	if kind == "c" {
		argv = slices.Concat([]string{built.run}, library(), []string{"--", built.worker})
	} else {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		argv = []string{self}
	}
	for _, a := range args {
		argv = append(argv, fmt.Sprint(a))
	}
	argv = append(slices.Clone(n.wrap), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	if kind != "c" {
		cmd.Env = append(os.Environ(), workerEnv+"="+kind)
	}
	p := newProcess(t, strings.Join(argv[len(argv)-len(args):], " "), cmd, func() error { return n.ns.Start(cmd) })
	p.kind = kind
	return p
}

// serve starts a worker that listens at the node's address.
func (n *node) serve(t *testing.T, kind, role string, port int) *process {
	t.Helper()
	p := n.run(t, kind, role, n.addr, port)
	p.expect(t, "listening")
	return p
}

// layers runs a test for plain TCP, and for direct sockets of both languages.
func layers(t *testing.T, kinds []string, f func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run("sockets="+kind, func(t *testing.T) { f(t, kind) })
	}
}

var (
	allKinds    = []string{"tcp", "go", "c"}
	directKinds = allKinds[1:]
)

// limit sets a limit of a process that runs, and returns what it was.
func (p *process) limit(t *testing.T, resource int, to unix.Rlimit) (was unix.Rlimit) {
	t.Helper()
	if err := unix.Prlimit(p.PID(), resource, &to, &was); err != nil {
		t.Fatal(err)
	}
	return was
}

// eventually waits until f returns nil, or fails the test.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	if err := testlab.Await(f); err != nil {
		t.Fatal(err)
	}
}

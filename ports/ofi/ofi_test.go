package ofi

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/internal/tempdir"
	"exnet/node/rpc"
	"exnet/node/rpc/far"
	"exnet/ports"

	"go.uber.org/goleak"
)

// buildDir is where all tests of this package build, one after the other.
var buildDir string

func TestMain(m *testing.M) {
	dir, err := tempdir.New("ofi-test")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	leaktest.Main(m, goleak.Cleanup(func(status int) {
		_ = tempdir.Remove(dir)
		os.Exit(status)
	}))
}

// node starts the port server of a node, and returns its socket.
func node(t *testing.T) (s *ports.Server, path string) {
	t.Helper()
	return serve(t, ports.Config{Node: 1})
}

func serve(t *testing.T, cfg ports.Config) (s *ports.Server, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ports")
	return serveAt(t, path, cfg), path
}

// serveAt is serve, at a path that another node may have had before.
func serveAt(t *testing.T, path string, cfg ports.Config) (s *ports.Server) {
	t.Helper()
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	s = ports.New(cfg)
	var all sync.WaitGroup
	all.Go(func() {
		for conn := range rpc.Accept(t.Context(), ln, time.Millisecond, func(error) {}) {
			all.Go(func() {
				if err := s.Process(conn); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Logf("a process: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		s.Close()
		all.Wait()
	})
	return s
}

// pairOfHosts is two nodes on hosts of their own, as far as they know, whose link can be cut.
type pairOfHosts struct {
	t     *testing.T
	cards [2]*nic.NIC
	far   [2]*far.Engine
	nodes [2]*ports.Server
	paths [2]string // of the nodes' sockets
	tls   bool
	cut   func()
}

// hosts starts two nodes, and links them.
func hosts(t *testing.T) *pairOfHosts {
	t.Helper()
	return hostsBy(t, false)
}

// hostsBy is hosts, with or without TLS.
func hostsBy(t *testing.T, tls bool) *pairOfHosts {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var run sync.WaitGroup
	h := &pairOfHosts{t: t, tls: tls}
	for i := range h.cards {
		n := fabrictest.NewNIC(t, fabric.NodeID(i))
		if err := mem.NewFabric().Attach(n); err != nil { // the way to itself
			t.Fatal(err)
		}
		e, err := far.New(n, far.Config{
			VPID: far.VPID, Direct: true, Resume: time.Hour,
			Hear:  func(from fabric.NodeID, session uint64, b []byte) { h.nodes[i].Hear(from, session, b) },
			Ended: func(n fabric.NodeID, session uint64) { h.nodes[i].FarDown(n, session) },
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := far.NewMover(n)
		if err != nil {
			t.Fatal(err)
		}
		h.cards[i], h.far[i] = n, e
		h.nodes[i], h.paths[i] = serve(t, ports.Config{Node: fabric.NodeID(i), Far: e, Mover: m})
		t.Cleanup(func() {
			cancel()
			run.Wait()
			if err := errors.Join(e.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		})
		run.Go(func() { _ = e.Run(ctx) }) // it returns nil
	}
	h.link()
	t.Cleanup(func() {
		for i, s := range h.nodes {
			s.FarDown(fabric.NodeID(1-i), math.MaxUint64)
		}
	})
	return h
}

// link links the nodes, as daemons do.
func (h *pairOfHosts) link() {
	h.t.Helper()
	x, y := fabrictest.JoinStream(h.t, h.cards[0], h.cards[1], fabrictest.StreamConfig{Conns: 2, TLS: h.tls}, nil)
	downs := [2]func(){h.far[0].Linked(1), h.far[1].Linked(0)}
	h.cut = func() {
		for i, l := range []*stream.Link{x, y} {
			l.Close()
			<-l.Done()
			downs[i]()
		}
	}
}

// run runs a program with one side at each node.
func (h *pairOfHosts) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(buildDir, program), args...)
	cmd.Env = append(os.Environ(), "EXN_PORTS="+h.paths[0], "EXN_PORTS_B="+h.paths[1])
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// build makes targets of the Makefile, if no test has yet. They are files in buildDir. The test is
// skipped without libfabric's headers.
func build(t *testing.T, targets ...string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "cc", "-E", "-include", "rdma/fabric.h", "-xc", os.DevNull).Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("libfabric's headers are missing: apt-get install libfabric-dev")
		}
		t.Skip("libfabric's headers are missing: apt-get install libfabric-dev")
	}
	args := []string{"-s", "-j2", "BUILD=" + buildDir}
	for _, target := range targets {
		args = append(args, filepath.Join(buildDir, target))
	}
	cmd := exec.CommandContext(t.Context(), "make", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The provider's programs, in plain form and under the sanitizers: everything that two endpoints
// do, peers that lie, and threads.
func TestPrograms(t *testing.T) {
	for _, args := range [][]string{
		{"plain/ends"}, {"plain/ends", "shared"}, {"asan/ends"}, {"plain/gone", "killed"}, {"asan/gone", "killed"}, {"asan/hostile"}, {"asan/limits", "rings"}, {"asan/order"}, {"plain/place"}, {"asan/place"}, {"asan/promises"}, {"plain/random", "15", "4000"}, {"asan/random", "17", "10000"},
		{"plain/threads", "fork"}, {"asan/threads"}, {"tsan/threads"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args, "-"), "/", "-"), func(t *testing.T) {
			switch args[0] {
			case "tsan/threads", "plain/place", "asan/ends", "asan/gone", "asan/random", "asan/threads": // another form of it is in the short one
				longtest.Skip(t)
			}
			build(t, args[0])
			s, path := node(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(buildDir, args[0]), args[1:]...)
			cmd.Env = append(os.Environ(), "EXN_PORTS="+path)
			if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
				t.Fatalf("%v\n%s", err, out)
			}
			idle(t, s)
		})
	}
}

// Whoever waits is told, in plain form and under the sanitizer.
func TestWaits(t *testing.T) {
	for _, kind := range []string{"plain", "asan"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "asan" {
				longtest.Skip(t)
			}
			program := kind + "/waits"
			build(t, program)
			for _, mode := range []string{"placing", "room", "posted", "context", "counted", "two", "shared", "stale", "forked", "copied", "orphan", "broken", "late", "starved"} {
				t.Run(mode, func(t *testing.T) {
					s, path := node(t)
					c := start(t, path, program, mode)
					c.says("done")
					c.ends()
					idle(t, s)
				})
			}
			t.Run("dead", func(t *testing.T) {
				s, path := node(t)
				c := start(t, path, program, "dead")
				c.says("connected")
				s.Close()
				if _, err := c.in.Write([]byte("ended\n")); err != nil {
					t.Error(err)
				}
				c.says("done")
				c.ends()
			})
			t.Run("ending", func(t *testing.T) {
				h := hosts(t)
				if err := h.run(t.Context(), program, "ending"); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Where all VPIDs of a unit are in use, a program is told so.
func TestAllPorts(t *testing.T) {
	build(t, "asan/limits")
	const vpids = fabric.VPIDs - int(wire.FirstVPID)
	s, path := serve(t, ports.Config{Node: 1, PerUser: 2 * vpids}) // a domain has a port of each unit
	cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "asan/limits"), "full", strconv.Itoa(vpids))
	cmd.Env = append(os.Environ(), "EXN_PORTS="+path)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	idle(t, s)
}

// The same endpoints at nodes of two hosts, and the order of completions.
func TestHosts(t *testing.T) {
	for _, args := range [][]string{{"plain/ends"}, {"asan/ends"}, {"plain/order"}, {"asan/order"}, {"plain/random", "9", "4000"}} {
		program := args[0]
		t.Run(strings.ReplaceAll(program, "/", "-"), func(t *testing.T) {
			if strings.HasPrefix(program, "asan/") {
				longtest.Skip(t)
			}
			build(t, program)
			h := hosts(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := h.run(ctx, program, args[1:]...); err != nil {
				t.Fatal(err)
			}
			for _, s := range h.nodes {
				idle(t, s)
			}
		})
	}
}

var cutTime = flag.Duration("cut.time", 0, "`how long` TestCut goes on, with a cut every 0.1 to 3 s; 0: a number of operations, with one in each few")

// What is under way between hosts when their link is cut is carried out when there is one again:
// once, in order, and whole.
func TestCut(t *testing.T) {
	for _, kind := range []string{"plain", "tls", "asan"} {
		t.Run(kind, func(t *testing.T) {
			if kind != "plain" {
				longtest.Skip(t)
			}
			program := "plain/cut"
			if kind == "asan" {
				program = "asan/cut"
			}
			cutOften(t, program, kind == "tls")
		})
	}
}

func cutOften(t *testing.T, program string, tls bool) {
	t.Helper()
	operations := "1200"
	if testing.Short() {
		operations = "120"
	}
	build(t, program)
	h := hostsBy(t, tls)
	args := []string{operations}
	if *cutTime > 0 {
		args = []string{"0", strconv.Itoa(int(cutTime.Seconds()))}
	}
	c := startWith(t, []string{"EXN_PORTS=" + h.paths[0], "EXN_PORTS_B=" + h.paths[1]}, program, args...)
	cuts, next := 0, time.Now()
	for c.lines.Scan() && c.lines.Text() == "cut" {
		if time.Now().Before(next) {
			continue
		}
		if *cutTime > 0 {
			next = time.Now().Add(100*time.Millisecond + rand.N(2900*time.Millisecond))
		}
		h.cut()
		h.link()
		cuts++
	}
	if c.lines.Text() != "done" {
		t.Errorf("after %d cuts the program says %q", cuts, c.lines.Text())
	}
	c.ends()
	t.Logf("%d cuts, %s", cuts, strings.TrimSpace(c.errs.String()))
	for _, s := range h.nodes {
		idle(t, s)
	}
}

var seeds = flag.Uint64("seeds", 1, "how many `seeds` TestApart, TestParallel and TestRDM try")

// Two processes at one node, and at nodes whose link is cut every 0.1 to 2 s: either is stopped,
// one is killed, at any moment. What had come is there, and all that was posted ends.
func TestApart(t *testing.T) {
	for _, kind := range []string{"plain", "asan", "hosts", "tls"} {
		t.Run(kind, func(t *testing.T) {
			program := "plain/apart"
			if kind == "asan" {
				program = "asan/apart"
			}
			if kind != "plain" {
				longtest.Skip(t)
			}
			build(t, program)
			for seed := range *seeds {
				args := []string{strconv.FormatUint(seed+1, 10), "20"}
				if kind == "hosts" || kind == "tls" {
					apart(t, hostsBy(t, kind == "tls"), nil, program, args)
					continue
				}
				s, path := node(t)
				c := startWith(t, []string{"EXN_PORTS=" + path}, program, args...)
				c.says("done")
				c.ends()
				t.Logf("seed %s: %s", args[0], strings.TrimSpace(c.errs.String()))
				idle(t, s)
			}
		})
	}
}

// Threads that share the objects of two endpoints, at one node and at two whose link is cut.
func TestParallel(t *testing.T) {
	for _, kind := range []string{"plain", "asan", "tsan", "hosts"} {
		t.Run(kind, func(t *testing.T) {
			program := kind + "/parallel"
			switch kind {
			case "hosts":
				program = "plain/parallel"
				fallthrough
			case "asan", "tsan":
				longtest.Skip(t)
			}
			rounds := "20"
			if kind == "asan" || kind == "tsan" { // each takes a while
				rounds = "3"
			}
			build(t, program)
			for seed := range *seeds {
				args := []string{strconv.FormatUint(seed+1, 10), rounds}
				if kind == "hosts" {
					apart(t, hosts(t), nil, program, args)
					continue
				}
				s, path := node(t)
				env := []string{"EXN_PORTS=" + path}
				if kind == "tsan" { // it has grants mapped at 0, and sees no copy of the kernel's
					env = append(env, "FI_EXNET_DIRECT=0")
				}
				c := startWith(t, env, program, args...)
				c.says("done")
				c.ends()
				idle(t, s)
			}
		})
	}
}

// Three endpoints of ofi_rxm at one node, and at two whose link is cut every 0.1 to 2 s.
func TestRDM(t *testing.T) {
	for _, kind := range []string{"host", "hosts", "tls"} {
		t.Run(kind, func(t *testing.T) {
			if kind != "host" {
				longtest.Skip(t)
			}
			env := []string{"FI_PROVIDER_PATH=" + buildDir, "FI_EXNET_IFACE=lo"}
			for seed := range *seeds {
				args := []string{"exnet;ofi_rxm", strconv.FormatUint(seed+1, 10), "5000"}
				if kind != "host" {
					apart(t, hostsBy(t, kind == "tls"), env, "rdm", args)
					continue
				}
				s, path := node(t)
				c := startWith(t, append(env, "EXN_PORTS="+path), "rdm", args...)
				c.says("done")
				c.ends()
				t.Logf("seed %s: %s", args[1], strings.TrimSpace(c.errs.String()))
				idle(t, s)
			}
		})
	}
}

// apart runs a program at two hosts whose link is cut meanwhile.
func apart(t *testing.T, h *pairOfHosts, env []string, program string, args []string) {
	t.Helper()
	c := startWith(t, append(env, "EXN_PORTS="+h.paths[0], "EXN_PORTS_B="+h.paths[1]), program, args...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.says("done")
		c.ends()
	}()
	for cuts := 0; ; cuts++ {
		select {
		case <-done:
			t.Logf("%q: %d cuts, %s", args, cuts, strings.TrimSpace(c.errs.String()))
			for _, s := range h.nodes {
				idle(t, s)
			}
			return
		case <-time.After(100*time.Millisecond + rand.N(1900*time.Millisecond)):
		}
		h.cut()
		h.link()
	}
}

// idle waits until a node has no port: a process that has ended leaves nothing.
func idle(t *testing.T, s *ports.Server) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(s.Ports()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("ports stay open: %+v", s.Ports())
		}
	}
}

// child is a program that says what it does, a line each time.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	errs  strings.Builder
}

// start builds a program and runs it at the node at path, for five minutes at most.
func start(t *testing.T, path, program, what string) *child {
	t.Helper()
	return startWith(t, []string{"EXN_PORTS=" + path}, program, what)
}

// startWith is start with other variables.
func startWith(t *testing.T, env []string, program string, args ...string) *child {
	t.Helper()
	build(t, program)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+*cutTime)
	t.Cleanup(cancel)
	c := &child{t: t, cmd: exec.CommandContext(ctx, filepath.Join(buildDir, program), args...)}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), env...), &c.errs
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.in, c.lines = in, bufio.NewScanner(out)
	return c
}

// says takes the next line.
func (c *child) says(want string) {
	c.t.Helper()
	if !c.lines.Scan() || c.lines.Text() != want {
		c.t.Errorf("the program says %q, want %q: %v", c.lines.Text(), want, c.lines.Err())
	}
}

// ends waits for the end, without an error.
func (c *child) ends() {
	c.t.Helper()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("%v\n%s", err, &c.errs)
	}
}

// When the node ends, whatever waits in a program ends with an error.
func TestNodeEnds(t *testing.T) {
	s, path := node(t)
	c := start(t, path, "asan/limits", "node")
	c.says("connected")
	s.Close()
	c.says("done")
	c.ends()
}

// A program that opens its domain again, when the node has ended, works at the node that was
// started since.
func TestNodeAgain(t *testing.T) {
	s, path := node(t)
	c := start(t, path, "asan/gone", "again")
	c.says("works")
	s.Close()
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
	again := serveAt(t, path, ports.Config{Node: 1})
	if _, err := c.in.Write([]byte("again\n")); err != nil {
		t.Error(err)
	}
	c.says("works")
	c.says("done")
	c.ends()
	idle(t, again)
}

// A libfabric of a later version than the provider was built for does not pass over it.
func TestLaterLibfabric(t *testing.T) {
	build(t, "newer")
	out, err := exec.CommandContext(t.Context(), filepath.Join(buildDir, "newer"), filepath.Join(buildDir, "libexnet-fi.so")).CombinedOutput()
	if err != nil || string(out) != "done\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// The provider exports what libfabric looks for, and no name of the libraries that it has in
// itself.
func TestExports(t *testing.T) {
	build(t, "libexnet-fi.so")
	out, err := exec.CommandContext(t.Context(), "nm", "-D", "--defined-only", "-j", filepath.Join(buildDir, "libexnet-fi.so")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 1 || got[0] != "fi_prov_ini" {
		t.Errorf("exports %q", got)
	}
}

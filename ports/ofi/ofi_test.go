package ofi

import (
	"bufio"
	"context"
	"errors"
	"io"
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
	"exnet/internal/accept"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/internal/tempdir"
	"exnet/ports"
	"exnet/ports/far"
	"exnet/ports/wire"

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
		for conn := range accept.All(t.Context(), ln, time.Millisecond, func(error) {}) {
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

// hosts starts two nodes on hosts of their own, as far as they know, and returns their sockets.
func hosts(t *testing.T) (all [2]*ports.Server, paths [2]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var run sync.WaitGroup
	for i, n := range fabrictest.NewStream(t, 2, fabrictest.StreamConfig{Conns: 2}) {
		e, err := far.NewDirect(n, far.VPID, func(from fabric.NodeID, b []byte) { all[i].Hear(from, b) })
		if err != nil {
			t.Fatal(err)
		}
		m, err := far.NewMover(n)
		if err != nil {
			t.Fatal(err)
		}
		all[i], paths[i] = serve(t, ports.Config{Node: fabric.NodeID(i), Far: e, Mover: m})
		t.Cleanup(func() {
			cancel()
			run.Wait()
			if err := errors.Join(e.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		})
		run.Go(func() { _ = e.Run(ctx) }) // it returns nil
	}
	t.Cleanup(func() {
		for i := range all {
			all[i].FarDown(fabric.NodeID(1 - i))
		}
	})
	return all, paths
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
		{"plain/ends"}, {"plain/ends", "shared"}, {"asan/ends"}, {"plain/gone", "killed"}, {"asan/gone", "killed"}, {"asan/hostile"}, {"asan/limits", "rings"}, {"asan/order"}, {"plain/place"}, {"asan/place"},
		{"plain/threads", "fork"}, {"asan/threads"}, {"tsan/threads"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args, "-"), "/", "-"), func(t *testing.T) {
			if args[0] == "tsan/threads" || args[0] == "plain/place" { // a third build for one; two seconds
				longtest.Skip(t)
			}
			build(t, args[0])
			s, path := node(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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
	for _, program := range []string{"plain/ends", "asan/ends", "plain/order", "asan/order"} {
		t.Run(strings.ReplaceAll(program, "/", "-"), func(t *testing.T) {
			build(t, program)
			all, paths := hosts(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(buildDir, program))
			cmd.Env = append(os.Environ(), "EXN_PORTS="+paths[0], "EXN_PORTS_B="+paths[1])
			if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, s := range all {
				idle(t, s)
			}
		})
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
	build(t, program)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c := &child{t: t, cmd: exec.CommandContext(ctx, filepath.Join(buildDir, program), what)}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), "EXN_PORTS="+path), &c.errs
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

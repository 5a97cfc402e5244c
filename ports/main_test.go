package ports

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exnet/fabric"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
	"exnet/node/rpc"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(attachedEnv); how != "" {
		attached(how)
		return
	}
	leaktest.Main(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

// node is a server with its sockets.
type node struct {
	*Server
	processes, peers string // paths
}

// registers is a register file of two: 8 can be written, 0 not.
type registers struct {
	mu    sync.Mutex
	value uint64
}

func (r *registers) ReadRegister(addr uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch addr {
	case 0:
		return 4711, true
	case 8:
		return r.value, true
	}
	return 0, false
}

func (r *registers) WriteRegister(addr, value uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if addr == 8 {
		r.value = value
	}
	return addr == 8
}

// nodes starts servers of nodes 1 to n, which reach each other.
func nodes(t testing.TB, n int, change ...func(*Config)) []*node {
	t.Helper()
	dir := t.TempDir()
	path := func(n fabric.NodeID, kind string) string {
		return filepath.Join(dir, string(rune('0'+n))+kind)
	}
	all := make([]*node, n)
	for i := range all {
		id := fabric.NodeID(i + 1)
		cfg := Config{
			Node: id, Registers: &registers{},
			Dial: func(to fabric.NodeID) (*net.UnixConn, error) {
				return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path(to, ".peers"), Net: "unixpacket"})
			},
			CheckPeer: func(*net.UnixConn, fabric.NodeID) error { return nil },
		}
		for _, f := range change {
			f(&cfg)
		}
		all[i] = &node{New(cfg), path(cfg.Node, ".ports"), path(cfg.Node, ".peers")}
		all[i].listen(t, all[i].processes, all[i].Process)
		all[i].listen(t, all[i].peers, all[i].Peer)
	}
	return all
}

// listen serves a socket until the test ends.
func (n *node) listen(t testing.TB, path string, serve func(*net.UnixConn) error) {
	t.Helper()
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for conn := range rpc.Accept(t.Context(), ln, time.Millisecond, func(error) {}) {
			all.Go(func() {
				if err := serve(conn); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Logf("%s: %v", path, err)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		n.Close()
		all.Wait()
	})
}

var (
	buildOnce sync.Once
	buildDir  string
	buildErr  error
)

// testProgram returns the path of a test program of lib/ctest, in plain and asan form. They are
// built once.
func testProgram(t testing.TB, kind, name string) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	programs := "programs"
	if kind != "plain" {
		longtest.Skip(t)
	} else if testing.Short() {
		programs = "plain"
	}
	buildOnce.Do(func() {
		if buildDir, buildErr = os.MkdirTemp("", "exn-ports-test"); buildErr != nil {
			return
		}
		out, err := exec.Command("make", "-s", "-j2", "-C", "lib", "BUILD="+buildDir, programs).CombinedOutput()
		if err != nil {
			buildErr = errors.New(err.Error() + "\n" + string(out))
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return filepath.Join(buildDir, kind, name)
}

// run runs a test program at a node to its end.
func (n *node) run(t *testing.T, kind string, args ...string) string {
	t.Helper()
	program := testProgram(t, kind, args[0]) // what it takes to build it does not count
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Env = append(os.Environ(), "EXN_PORTS="+n.processes)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// idle waits until a server has no port left.
func (n *node) idle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(n.Ports()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("ports stay open: %+v", n.Ports())
		}
	}
}

package emp

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// within is what a node may take to notice another's coming or going on a machine
// with other work; alone it is milliseconds.
const within = 30 * time.Second

func TestNodesFindEachOther(t *testing.T) {
	dir := tempDir(t)
	var nodes []node
	for range 4 {
		nodes = append(nodes, start(t, Config{Dir: dir}, fakeLinker))
	}
	all := []fabric.NodeID{1, 2, 3, 4}
	for i, n := range nodes {
		if n.ID() != all[i] {
			t.Errorf("node %d, want %d", n.ID(), all[i])
		}
		want := slices.DeleteFunc(slices.Clone(all), func(id fabric.NodeID) bool { return id == n.ID() })
		eventually(t, "all linked", within, func() bool { return slices.Equal(n.up(), want) })
	}
	// One says goodbye and comes back: it is the same ID, and another token.
	token := nodes[1].Self().Token
	nodes[1].stop()
	for _, i := range []int{0, 2, 3} {
		eventually(t, "node 2 gone", within, func() bool { return len(nodes[i].Peers()) == 2 })
	}
	nodes[1] = start(t, Config{Dir: dir}, fakeLinker)
	if s := nodes[1].Self(); s.Node != 2 || s.Token == token {
		t.Errorf("came back as %+v", s)
	}
	for _, n := range nodes {
		eventually(t, "linked again", within, func() bool { return len(n.up()) == 3 })
	}
	for _, n := range nodes {
		n.stop()
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v, want it gone", err)
	}
}

func TestKilledNode(t *testing.T) {
	dir := tempDir(t)
	var left atomic.Int32
	a := start(t, Config{Dir: dir, Node: id(1), OnLeft: func(n fabric.NodeID) {
		if n == 9 { // the other one leaves as the test ends
			left.Add(1)
		}
	}}, fakeLinker)
	b := start(t, Config{Dir: dir, Node: id(20)}, fakeLinker)
	for i := range int32(2) { // killed, and restarted with the same ID
		cmd := startHelper(t, dir)
		for _, n := range []node{a, b} {
			eventually(t, "node 9 linked", within, func() bool { return slices.Contains(n.up(), 9) })
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, n := range []node{a, b} {
			eventually(t, "node 9 gone", within, func() bool { return len(n.Peers()) == 1 })
		}
		eventually(t, "node 9 has left", within, func() bool { return left.Load() == i+1 })
		_ = cmd.Wait() // killed
	}
	if names := files(t, dir); slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "node-9") }) {
		t.Errorf("left behind: %v", names)
	}
}

func startHelper(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("helper says %q, %v", line, err)
	}
	return cmd
}

// A link that fails is made again, and costs the others nothing.
func TestLinkFails(t *testing.T) {
	dir := tempDir(t)
	var broken atomic.Bool
	broken.Store(true)
	var over atomic.Bool
	a := start(t, Config{Dir: dir, OnLeft: func(n fabric.NodeID) {
		if !over.Load() {
			t.Errorf("node %d has left", n)
		}
	}}, fakeLinker)
	b := start(t, Config{Dir: dir}, fakeLinker)
	c := start(t, Config{Dir: dir}, func(conn *net.UnixConn, peer fabric.NodeID) (Link, error) {
		if peer == 1 && broken.Load() {
			conn.Close()
			return nil, errors.New("no memory")
		}
		return fakeLinker(conn, peer)
	})
	eventually(t, "2 and 3 linked", within, func() bool { return slices.Contains(b.up(), 3) && slices.Equal(c.up(), []fabric.NodeID{2}) })
	eventually(t, "the reason is told", within, func() bool {
		return c.Peers()[0].Err != nil && strings.Contains(c.log.String(), "no memory")
	})
	broken.Store(false)
	eventually(t, "1 and 3 linked", 2*within, func() bool { return slices.Contains(a.up(), 3) && len(c.up()) == 2 })
	if n := strings.Count(c.log.String(), "no memory"); n != 1 {
		t.Errorf("told %d times", n)
	}
	// One end closes its link: both make another.
	for _, p := range c.Peers() {
		if err := p.Link.Close(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "linked again", within, func() bool {
		return len(a.up()) == 2 && len(b.up()) == 2 && len(c.up()) == 2 && a.Peers()[1].Links == 2 && b.Peers()[1].Links == 2
	})
	over.Store(true)
}

// A node that may open no more files takes nobody for gone.
func TestNoDescriptors(t *testing.T) {
	dir := tempDir(t)
	var over atomic.Bool
	left := func(n fabric.NodeID) {
		if !over.Load() {
			t.Errorf("node %d has left", n)
		}
	}
	a := start(t, Config{Dir: dir, OnLeft: left}, fakeLinker)
	b := start(t, Config{Dir: dir, OnLeft: left}, fakeLinker)
	linked := func() bool { return len(a.up()) == 1 && len(b.up()) == 1 }
	eventually(t, "linked", within, linked)
	time.Sleep(2 * secondLook) // they have looked again
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	for range 10 { // each has the nodes look
		name := filepath.Join(dir, "link")
		if err := errors.Join(os.Symlink("nowhere", name), os.Remove(name)); err != nil {
			t.Error(err)
		}
		time.Sleep(secondLook / 5)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Dir: dir, OnLeft: left}, fakeLinker)
	eventually(t, "another node linked", within, func() bool { return len(a.up()) == 2 && len(b.up()) == 2 })
	for _, p := range append(a.Peers(), b.Peers()...) {
		if p.Links != 1 {
			t.Errorf("node %d was linked %d times", p.Node, p.Links)
		}
	}
	over.Store(true)
}

// A Linker that hangs does not keep the node from leaving.
func TestLeaveWhileLinking(t *testing.T) {
	dir := tempDir(t)
	hang := func(conn *net.UnixConn, _ fabric.NodeID) (Link, error) {
		_, err := conn.Read(make([]byte, 1))
		conn.Close()
		return nil, errors.Join(errors.New("ended"), err)
	}
	a := start(t, Config{Dir: dir}, hang)
	b := start(t, Config{Dir: dir}, hang)
	eventually(t, "linking", within, func() bool {
		return len(a.Peers()) == 1 && a.Peers()[0].State == Linking && b.Peers()[0].State == Linking
	})
	began := time.Now()
	a.stop()
	b.stop()
	if d := time.Since(began); d > within {
		t.Errorf("leaving took %v", d)
	}
}

// Who is not a node of the fabric is told so, and does no harm.
func TestStrangers(t *testing.T) {
	dir := tempDir(t)
	a := start(t, Config{Dir: dir, Node: id(5)}, fakeLinker)
	say := func(b []byte) (h hello, err error) {
		c, err := net.Dial(network, File(dir, 5, socketSuffix))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		return hearHello(c.(*net.UnixConn))
	}
	encode := func(h hello) []byte {
		b, err := h.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		hello hello
		want  string
	}{
		"version": {hello{Version: 2, Node: 7}, "another version"},
		"lower":   {hello{Version: 1, Node: 3}, "higher ID"},
		"itself":  {hello{Version: 1, Node: 5}, "higher ID"},
		"unknown": {hello{Version: 1, Node: 7}, "not in the directory"},
	} {
		h, err := say(encode(c.hello))
		if err != nil || !strings.Contains(h.Refused, c.want) || h.Version != Version || h.Node != 5 {
			t.Errorf("%s: %+v, %v; want %q", name, h, err, c.want)
		}
	}
	if h, err := say([]byte("GET / HTTP/1.1\r\n\r\n")); err == nil {
		t.Errorf("answered noise with %+v", h)
	}
	b := start(t, Config{Dir: dir, MTU: 1500}, fakeLinker)
	eventually(t, "mixed MTUs are reported", within, func() bool { return strings.Contains(b.log.String(), "MTUs differ") })
	eventually(t, "linked all the same", within, func() bool { return len(a.up()) == 1 && len(b.up()) == 1 })
}

// A node of another version is not linked, and the log says why.
func TestPeerOfAnotherVersion(t *testing.T) {
	dir := tempDir(t)
	a := start(t, Config{Dir: dir}, fakeLinker)
	old := fakeNode(t, a.dir, Description{Version: 2, Node: 2})
	if _, err := Join(Config{Dir: dir}); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "node 2") {
		t.Errorf("%v, want %v", err, ErrVersion)
	}
	eventually(t, "told", within, func() bool { return len(a.Peers()) == 1 && errors.Is(a.Peers()[0].Err, ErrVersion) })
	old.Close()
	eventually(t, "reaped", within, func() bool { return len(a.Peers()) == 0 && len(files(t, dir)) == 3 })
}

// fakeNode publishes a description as another process would.
func fakeNode(t *testing.T, d *dir, desc Description) *os.File {
	t.Helper()
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	f, err := d.publish(desc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRunAgainAndAgain(t *testing.T) {
	dir := tempDir(t)
	keep := start(t, Config{Dir: dir}, fakeLinker)
	for range 20 {
		n := start(t, Config{Dir: dir, Node: id(2)}, fakeLinker)
		eventually(t, "linked", within, func() bool { return len(keep.up()) == 1 })
		n.stop()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := join(t, Config{Dir: dir})
	if err := m.Run(ctx, fakeLinker); err != nil {
		t.Error(err)
	}
}

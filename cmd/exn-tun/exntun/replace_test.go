package exntun

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/cli"
	"exnet/internal/ctxend"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

// echoed is a TCP connection over exn0 to a program that sends back what it gets.
type echoed struct{ conn net.Conn }

// dialEcho makes a connection from namespace a to address addr in b.
func dialEcho(t *testing.T, a, b *netns.NS, addr string) *echoed {
	t.Helper()
	var ln net.Listener
	if err := b.Do(func() (err error) { ln, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); return err }); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conn, err := ln.Accept(); err == nil {
			defer ctxend.Do(ctx, func() { conn.Close() })()                      // the end of the other side may not come
			_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}) // without splice, whose pipes stay open
		}
	}()
	e := new(echoed)
	eventually(t, "a connection", func() bool {
		return a.Do(func() (err error) {
			e.conn, err = net.DialTimeout("tcp", ln.Addr().String(), time.Second)
			return err
		}) == nil
	})
	t.Cleanup(func() {
		e.conn.Close()
		end()
		ln.Close()
		<-served
	})
	return e
}

// load sends numbered lines until stop is closed, and checks all that comes back. It returns how
// many did.
func (e *echoed) load(stop <-chan struct{}) (lines int, err error) {
	const batch = 1000
	if err := e.conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil { // a guard against a hang
		return 0, err
	}
	for {
		select {
		case <-stop:
			return lines, nil
		default:
		}
		var want []byte
		for i := range batch {
			want = fmt.Appendf(want, "line %d\n", lines+i)
		}
		sent := make(chan error, 1)
		go func() { _, err := e.conn.Write(want); sent <- err }()
		got := make([]byte, len(want))
		_, err := io.ReadFull(e.conn, got)
		if serr := <-sent; err == nil {
			err = serr
		}
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("after %d lines others came than were sent", lines)
		}
		if err != nil {
			return lines, err
		}
		lines += batch
	}
}

// indexIn returns the index of exn0 in a namespace; "": there is none.
func indexIn(ns *netns.NS) (index string) {
	_ = ns.Do(func() error {
		i, err := net.InterfaceByName("exn0")
		if err == nil {
			index = strconv.Itoa(i.Index)
		}
		return err
	})
	return index
}

// ip runs it in a namespace.
func ip(t *testing.T, ns *netns.NS, args string) {
	t.Helper()
	cmd := exec.Command("ip", strings.Fields(args)...)
	cmd.Stderr = os.Stderr
	if err := ns.Run(cmd); err != nil {
		t.Errorf("ip %s: %v", args, err)
	}
}

// Another process takes the place of a node, ten times. The interface, its addresses and routes,
// and a connection under load stay.
func TestRootReplace(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a, b := netnstest.New(t), netnstest.New(t)
	node := func(ns *netns.NS, addr string) *upNode {
		t.Helper()
		return startUp(t, ns, "--dir", dir, "--addr", addr+"/24", "--replace")
	}
	nodes := []*upNode{node(a, "10.2.0.1"), node(b, "10.2.0.2")}
	ip(t, b, "addr add 10.7.0.2/24 dev exn0")
	ip(t, b, "route add 10.9.0.0/16 dev exn0")
	ip(t, a, "route add 10.7.0.0/24 dev exn0")
	before := []string{indexIn(a), indexIn(b)}
	e := dialEcho(t, a, b, "10.7.0.2")
	stop, done := make(chan struct{}), make(chan error, 1)
	var lines int
	go func() {
		var err error
		lines, err = e.load(stop)
		done <- err
	}()
	for i := range 10 {
		at, addr := i%2, []string{"10.2.0.1", "10.2.0.2"}[i%2]
		old := nodes[at]
		nodes[at] = node(old.ns, addr)
		<-old.exited
		if code := old.cmd.ProcessState.ExitCode(); code != cli.ExitOK {
			t.Errorf("the node that was replaced: exit status %d: %s", code, old.stderr)
		}
	}
	eventually(t, "ping", func() bool { return pings(a, "10.7.0.2") })
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d lines", lines)
	if after := []string{indexIn(a), indexIn(b)}; !slices.Equal(before, after) {
		t.Errorf("interfaces %v before, %v after", before, after)
	}
	if status, stdout, stderr := run(t.Context(), "down", "--dir", dir); status != cli.ExitOK || stdout != "node 1 is down\nnode 2 is down\n" {
		t.Errorf("down: %d, %q, %q", status, stdout, stderr)
	}
	for _, n := range nodes {
		<-n.exited
		if at := indexIn(n.ns); at != "" {
			t.Errorf("after down there is interface %s", at)
		}
	}
}

// keeper does what systemd does for a service with a store of descriptors.
type keeper struct {
	conn *net.UnixConn
	kept int // -1: none
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{conn: conn, kept: -1}
	t.Cleanup(func() { k.drop(); conn.Close() })
	return k
}

func (k *keeper) drop() {
	if k.kept >= 0 {
		unix.Close(k.kept)
		k.kept = -1
	}
}

// until handles messages, up to one that begins with text.
func (k *keeper) until(t *testing.T, text string) {
	t.Helper()
	for {
		b, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
		_ = k.conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
		n, oobn, _, _, err := k.conn.ReadMsgUnix(b, oob)
		if err != nil {
			t.Fatalf("waiting for %s: %v", text, err)
		}
		message := string(b[:n])
		if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
			fds, err := unix.ParseUnixRights(&msgs[0])
			if err != nil || !strings.HasPrefix(message, "FDSTORE=1\n") || !strings.Contains(message, "FDNAME=exn0") {
				t.Fatalf("%q, %v", message, err)
			}
			k.drop()
			k.kept = fds[0]
		}
		if strings.HasPrefix(message, "FDSTOREREMOVE=1\n") {
			k.drop()
		}
		if strings.HasPrefix(message, text) {
			return
		}
	}
}

// service runs a node as systemd would. The shell gets the kept descriptor as number 3, and has the
// process ID that the node has after it.
func (k *keeper) service(t *testing.T, ns *netns.NS, args ...string) *upNode {
	t.Helper()
	script := `exec "$0" "$@"`
	cmd := exec.Command("sh")
	if k.kept >= 0 {
		script = `LISTEN_FDS=1 LISTEN_FDNAMES=exn0 LISTEN_PID=$$ ` + script
		fd, err := unix.FcntlInt(uintptr(k.kept), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(fd), "kept")
		defer file.Close()
		cmd.ExtraFiles = []*os.File{file}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{"sh", "-c", script, self, "up", "--netns", ns.Path()}, args...)
	cmd.Env = append(os.Environ(), programEnv+"=1", notifyEnv+"="+k.conn.LocalAddr().String())
	u := &upNode{cmd: cmd, ns: ns, stderr: new(buffer), exited: make(chan struct{})}
	cmd.Stderr = u.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(u.exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(u.kill)
	k.until(t, "READY=1")
	return u
}

// systemd keeps the interface while it restarts the service, also after it was killed; exn-tun down
// removes it.
func TestRootServiceRestart(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a, b := netnstest.New(t), netnstest.New(t)
	startUp(t, a, "--dir", dir, "--addr", "10.2.0.1/24")
	k := newKeeper(t)
	args := []string{"--dir", dir, "--addr", "10.2.0.2/24"}
	n := k.service(t, b, args...)
	index := indexIn(b)
	e := dialEcho(t, a, b, "10.2.0.2")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { _, err := e.load(stop); done <- err }()
	for i := range 10 {
		signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[i%2]
		if err := n.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		<-n.exited
		if k.kept < 0 || indexIn(b) != index {
			t.Fatalf("after %v the interface is gone: %s", signal, n.stderr)
		}
		n = k.service(t, b, args...)
	}
	eventually(t, "ping", func() bool { return pings(a, "10.2.0.2") })
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if indexIn(b) != index {
		t.Error("another interface took its place")
	}
	if status, stdout, stderr := run(t.Context(), "down", "--dir", dir, "--node", "2"); status != cli.ExitOK {
		t.Errorf("down: %d, %q, %q", status, stdout, stderr)
	}
	k.until(t, "STOPPING=1")
	<-n.exited
	if at := indexIn(b); at != "" || k.kept >= 0 {
		t.Errorf("after down there is interface %q", at)
	}
}

// What is kept and does not fit does not keep the service from starting for ever.
func TestRootServiceOtherKind(t *testing.T) {
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	ns := netnstest.New(t)
	k := newKeeper(t)
	k.service(t, ns, "--dir", dir).kill()
	other := k.service // the kind differs, and what systemd keeps still has the name
	cmd, _, stderr := programCommand("up", "--netns", ns.Path(), "--dir", dir, "--tap")
	cmd.Env = append(cmd.Env, notifyEnv+"="+k.conn.LocalAddr().String())
	if err := cmd.Run(); err == nil {
		t.Error("it started beside the interface that is kept")
	}
	oneLineOf(t, stderr.String(), "exn0")
	k.until(t, "FDSTOREREMOVE=1")
	n := other(t, ns, "--dir", dir, "--tap")
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-n.exited
}

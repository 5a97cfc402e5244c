package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/emp"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
)

// asUser connects to a Unix socket as another user.
func asUser(t *testing.T, uid, kind int, path string) net.Conn {
	t.Helper()
	done := make(chan error)
	var fd int
	go func() {
		runtime.LockOSThread() // it ends with the goroutine: it has another user
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
		if errno != 0 {
			done <- errno
			return
		}
		var err error
		if fd, err = unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	return conn
}

// Whoever is not of the fabric is refused at the node's sockets, even if their files
// let everybody in; it is told why, and counted.
func TestRootStrangers(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}
	base, err := os.MkdirTemp("", "exn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "lab")
	a := start(t, dir, netnstest.New(t), "10.2.0.1/24")
	ctl, ds := emp.File(dir, a.member.ID(), control.Suffix), emp.File(dir, a.member.ID(), brokerSuffix)
	if err := errors.Join(os.Chmod(base, 0o711), os.Chmod(dir, 0o711), os.Chmod(ctl, 0o666), os.Chmod(ds, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{control.OpStop, control.OpStatus} {
		conn := asUser(t, 12345, unix.SOCK_STREAM, ctl)
		if err := json.NewEncoder(conn).Encode(control.Request{Op: op}); err != nil {
			t.Fatal(err)
		}
		var r control.Reply
		if err := json.NewDecoder(conn).Decode(&r); err != nil || r.Status != nil || !strings.Contains(r.Error, "user 12345") || strings.Contains(r.Error, "\n") {
			t.Errorf("%s: %+v, %v", op, r, err)
		}
	}
	conn := asUser(t, 12345, unix.SOCK_SEQPACKET, ds)
	if n, err := conn.Read(make([]byte, 100)); n > 0 || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the broker says %d bytes, %v", n, err)
	}
	s, err := a.Status() // it was not stopped
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, c := range s.Counters {
		got[c.Name] = c.Value
	}
	if got["refused.control"] != 2 || got["refused.brokers"] != 1 {
		t.Errorf("refused: control %d, brokers %d", got["refused.control"], got["refused.brokers"])
	}
}

// A member of the fabric's group, who may ask for the status and end the node, does not get the
// interface: with that it would send packets to the host.
func TestRootReplaceByGroup(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	if os.Geteuid() != 0 || os.Getegid() != 0 {
		t.Skip("needs root to be another user of its group")
	}
	base, err := os.MkdirTemp("", "exn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "lab")
	if err := errors.Join(os.Chmod(base, 0o711), os.Mkdir(dir, 0o770), os.Chmod(dir, 0o770)); err != nil {
		t.Fatal(err)
	}
	a := start(t, dir, netnstest.New(t), "10.2.0.1/24")
	for op, want := range map[string]string{control.OpStatus: "", control.OpReplace: "neither root nor this user"} {
		conn := asUser(t, 12345, unix.SOCK_STREAM, emp.File(dir, a.member.ID(), control.Suffix))
		if err := json.NewEncoder(conn).Encode(control.Request{Op: op}); err != nil {
			t.Fatal(err)
		}
		b, oob := make([]byte, 1<<20), make([]byte, unix.CmsgSpace(4))
		n, oobn, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(b, oob)
		if err != nil || oobn > 0 || (want == "") != !strings.Contains(string(b[:n]), `"error"`) || !strings.Contains(string(b[:n]), want) {
			t.Errorf("%s: %s, %d bytes of control data, %v", op, b[:n], oobn, err)
		}
	}
	if _, err := a.Status(); err != nil { // it was not stopped
		t.Error(err)
	}
}

// The directory says whose an address is, also the link-local one that a node has by its
// MAC address.
func TestRootOwner(t *testing.T) {
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := start(t, dir, netnstest.New(t), "10.2.0.1/24")
	b := start(t, dir, netnstest.New(t), "10.2.0.2/24", "fd00:10:2::2/64")
	local := a.cfg.MACPrefix.MAC(b.member.ID()).LinkLocal()
	eventually(t, "they are linked", func() bool { _, ok := a.ownerOf(local); return ok })
	for addr, want := range map[netip.Addr]bool{
		local: true, netip.MustParseAddr("10.2.0.2"): true, netip.MustParseAddr("fd00:10:2::2"): true,
		netip.MustParseAddr("10.2.0.1"): false, netip.MustParseAddr("10.2.0.3"): false,
	} {
		if n, ok := a.ownerOf(addr); ok != want || ok && n != uint16(b.member.ID()) {
			t.Errorf("%v: node %d, %v", addr, n, ok)
		}
	}
}

// Who connects to the sockets at which nodes meet, and says nothing, is not kept.
func TestRootSilentPeers(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	d := start(t, filepath.Join(t.TempDir(), "lab"), netnstest.New(t), "10.2.0.1/24")
	var all sync.WaitGroup
	for _, suffix := range []string{brokerSuffix, portsSuffix, memorySuffix} {
		conn := asUser(t, 0, unix.SOCK_SEQPACKET, emp.File(d.cfg.Dir, d.member.ID(), suffix))
		all.Go(func() {
			for b := make([]byte, 1000); ; { // the broker says who it is
				if n, err := conn.Read(b); n == 0 || err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s: the connection is kept", suffix)
					}
					return
				}
			}
		})
	}
	all.Wait()
}

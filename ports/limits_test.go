package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
	"exnet/ports/portstest"
)

// openPort opens a port and returns what comes with it.
func (n *node) openPort(t *testing.T, u wire.Unit) (*net.UnixConn, wire.Addr, rpc.Descriptors) {
	t.Helper()
	conn := n.dial(t)
	r, fds := askAll(t, conn, wire.Message{Op: wire.OpOpen, Unit: u, A: wire.Version})
	if r.Status != wire.StatusOK {
		t.Fatalf("open: %+v", r)
	}
	return conn, r.Addr, fds
}

// askAll is ask with the answer's descriptors, which are closed when the test ends.
func askAll(t *testing.T, conn *net.UnixConn, m wire.Message) (r wire.Message, fds rpc.Descriptors) {
	t.Helper()
	b, _ := m.AppendBinary(nil)
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	return hearAll(t, conn)
}

// hearAll returns the next message with its descriptors, as askAll.
func hearAll(t *testing.T, conn *net.UnixConn) (r wire.Message, fds rpc.Descriptors) {
	t.Helper()
	in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		t.Fatal(err)
	}
	b, fds, err := in.Next()
	t.Cleanup(fds.Close)
	if err == nil {
		err = r.UnmarshalBinary(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, fds
}

// Without descriptors a port is refused, wherever they run out.
func TestNoDescriptors(t *testing.T) {
	s := New(Config{Node: 1})
	first, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(first)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	for room := range 6 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(first + room), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.newPort(fabric.UnitRMA, -1); !errors.Is(err, unix.EMFILE) {
			t.Errorf("room for %d: %v", room, err)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if again, err := unix.Dup(0); err != nil || again != first {
		t.Errorf("descriptor %d is free, before %d: %v", again, first, err)
	} else {
		unix.Close(again)
	}
}

// A process that does not read has no more than one answer waiting, with its descriptors.
func TestUnreadAnswers(t *testing.T) {
	n := nodes(t, 1)[0]
	conn, at, _ := n.openPort(t, fabric.UnitRMA)
	b, _ := wire.Message{Op: wire.OpConnect, Addr: at, Number: 7}.AppendBinary(nil)
	before := openFiles(t)
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	sent := 0
	for ; sent < 5000; sent++ {
		if _, err := conn.Write(b); err != nil {
			break
		}
	}
	if sent == 5000 {
		t.Error("all of 5000 requests were read")
	}
	if now := openFiles(t); now > before+60 {
		t.Errorf("%d descriptors are open after %d requests, %d before", now, sent, before)
	}
	// It is answered when it reads.
	conn.SetDeadline(time.Now().Add(time.Minute))
	in, _ := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	for got := 0; got < sent; {
		b, fds, err := in.Next()
		fds.Close()
		var m wire.Message
		if err == nil {
			err = m.UnmarshalBinary(b)
		}
		if err != nil {
			t.Fatalf("after %d answers of %d: %v", got, sent, err)
		}
		if m.Op == wire.OpConnect {
			got++
		}
	}
}

// asUser runs f on a thread of another user.
func asUser(t *testing.T, uid int, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			done <- e
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A user has so many connections at the most, whether there is a port at the other end or not.
func TestConnections(t *testing.T) {
	n := nodes(t, 1, func(c *Config) { c.PerUser = 4 })[0]
	name := fmt.Sprintf("@exn-ports-test-%d", os.Getpid())
	n.listen(t, name, n.Process)
	dial := func(uid int) (conn *net.UnixConn) {
		asUser(t, uid, func() (err error) {
			conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
			return err
		})
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		return conn
	}
	b, _ := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version}.AppendBinary(nil)
	results := map[wire.Status]int{}
	const closed = 99
	count := func(conns ...*net.UnixConn) {
		for _, conn := range conns {
			var r wire.Message
			_, err := conn.Write(b)
			buf := make([]byte, wire.MessageSize)
			if err == nil {
				_, err = conn.Read(buf)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			if err != nil || r.UnmarshalBinary(buf) != nil {
				r.Status = closed
			}
			results[r.Status]++
		}
	}
	var all []*net.UnixConn
	for range 9 {
		all = append(all, dial(1000))
	}
	// Until the one too many is closed: those that are refused a port make room for it.
	shut := func(conn *net.UnixConn) bool {
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := conn.Read(make([]byte, 1))
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	for deadline := time.Now().Add(time.Minute); n.connections1000() < 8 || !slices.ContainsFunc(all, shut); {
		if time.Now().After(deadline) {
			t.Fatal("the connections are not taken")
		}
	}
	count(all...)
	count(dial(1001))
	if len(results) != 3 || results[closed] != 1 || results[wire.StatusFull] != 4 || results[wire.StatusOK] != 5 {
		t.Errorf("%v", results)
	}
}

// connections1000 is how many connections user 1000 has.
func (n *node) connections1000() int { return n.hub.Sessions(1000) }

// holdWrites has a write to a file not end, which holds its lock: others wait, until end is called.
func holdWrites(t *testing.T, fd int) (end func()) {
	t.Helper()
	uffd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if e != 0 {
		t.Skipf("userfaultfd: %v", e)
	}
	mem, err := unix.Mmap(-1, 0, wire.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	api := [3]uint64{0xaa, 0, 0}
	register := [4]uint64{uint64(uintptr(unsafe.Pointer(&mem[0]))), wire.PageSize, 1, 0}
	const ioctlAPI, ioctlRegister = 0xc018aa3f, 0xc020aa00
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uffd, ioctlAPI, uintptr(unsafe.Pointer(&api))); e != 0 {
		t.Skipf("userfaultfd: %v", e)
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uffd, ioctlRegister, uintptr(unsafe.Pointer(&register))); e != 0 {
		t.Skipf("userfaultfd: %v", e)
	}
	done := make(chan error)
	go func() {
		_, err := unix.Pwrite(fd, mem, 0) // until the fault is answered: never
		done <- err
	}()
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(uffd), Events: unix.POLLIN}}, 60000); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		unix.Close(int(uffd)) // ends the fault
		<-done
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
}

// A process that holds the lock of its page's file, by a write that does not end, holds up
// nobody else.
func TestHeldPage(t *testing.T) {
	n := nodes(t, 1)[0]
	_, at, fds := n.openPort(t, fabric.UnitVELO)
	end := holdWrites(t, fds[0])
	defer end()
	conn, _, _ := n.openPort(t, fabric.UnitVELO)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	answered := make(chan struct{})
	time.AfterFunc(20*time.Second, func() {
		select {
		case <-answered:
		default:
			t.Error("the server waits for a process")
			end()
		}
	})
	r := portstest.Ask(t, conn, wire.Message{Op: wire.OpConnect, Addr: at})
	close(answered)
	if r.Status != wire.StatusOK || len(n.Ports()) != 2 {
		t.Errorf("%+v", r)
	}
}

// Each peer has a bell of its own: what one sets does not make another wait.
func TestBellDoesNotBlock(t *testing.T) {
	n := nodes(t, 1)[0]
	_, at, _ := n.openPort(t, fabric.UnitVELO)
	var bells []int
	for range 2 {
		conn, _, _ := n.openPort(t, fabric.UnitVELO)
		r, fds := askAll(t, conn, wire.Message{Op: wire.OpConnect, Addr: at})
		if r.Status != wire.StatusOK {
			t.Fatalf("%+v", r)
		}
		bells = append(bells, fds[1])
	}
	if err := unix.SetNonblock(bells[0], false); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(bells[1]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the other's bell: %#x, %v", flags, err)
	}
}

// A node that is not root's speaks for its own user's processes only.
func TestPeersWord(t *testing.T) {
	n := nodes(t, 1)[0]
	_, at, _ := n.openPort(t, fabric.UnitVELO)
	name := fmt.Sprintf("@exn-ports-test-peer-%d", os.Getpid())
	n.listen(t, name, n.Peer)
	var conn *net.UnixConn
	asUser(t, 1000, func() (err error) {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
		return err
	})
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	b, _ := wire.Message{Op: wire.OpHello, Addr: wire.Addr{Node: 2}, A: wire.Version}.AppendBinary(nil)
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	if r, fds := askAll(t, conn, wire.Message{Op: wire.OpPeerConnect, Number: 1, Addr: at, Unit: fabric.UnitVELO, A: 20}); r.Status != wire.StatusDenied || len(fds) > 0 {
		t.Errorf("as root: %+v, %d descriptors", r, len(fds))
	}
	if r := portstest.Ask(t, conn, wire.Message{Op: wire.OpRegister, Number: 2, Addr: wire.Addr{Node: 1}, A: 8, B: 70, C: registerWrite}); r.Status != wire.StatusDenied {
		t.Errorf("as root: %+v", r)
	}
	if r := portstest.Ask(t, conn, wire.Message{Op: wire.OpRegister, Number: 3, Addr: wire.Addr{Node: 1}}); r.Status != wire.StatusOK || r.B != 4711 {
		t.Errorf("%+v", r)
	}
}

// A process has one request to another node at a time: no flood of one ends what others have
// with that node.
func TestFloodToPeer(t *testing.T) {
	all := nodes(t, 2)
	honest, _, _ := all[0].openPort(t, fabric.UnitVELO)
	_, at, _ := all[1].openPort(t, fabric.UnitVELO)
	if r := portstest.Ask(t, honest, wire.Message{Op: wire.OpConnect, Addr: at}); r.Status != wire.StatusOK {
		t.Fatalf("%+v", r)
	}
	flood, _, _ := all[0].openPort(t, fabric.UnitVELO)
	slow := all[1].Server
	slow.mu.Lock()
	b, _ := wire.Message{Op: wire.OpRegister, Addr: wire.Addr{Node: 2}}.AppendBinary(nil)
	for range 10000 {
		if _, err := flood.Write(b); err != nil {
			break
		}
	}
	slow.mu.Unlock()
	if r := portstest.Ask(t, honest, wire.Message{Op: wire.OpRegister, Addr: wire.Addr{Node: 2}}); r.Op != wire.OpRegister || r.Status != wire.StatusOK {
		t.Errorf("%+v", r)
	}
}

// The end of a peer that is told before an answer does not take the answer away.
func TestEndBeforeAnswer(t *testing.T) {
	testProgram(t, "plain", "peers")
	var n *node
	var peer *net.UnixConn
	ready := make(chan struct{}) // n and peer are
	dial := func(fabric.NodeID) (*net.UnixConn, error) {
		<-ready
		for _, p := range n.Ports() {
			if p.PID != os.Getpid() {
				// It finds both when it runs again.
				_ = unix.Kill(p.PID, unix.SIGSTOP)
				time.AfterFunc(50*time.Millisecond, func() { _ = unix.Kill(p.PID, unix.SIGCONT) })
			}
		}
		peer.Close()
		for len(n.Ports()) > 1 {
			time.Sleep(100 * time.Microsecond)
		}
		return nil, errors.New("there is no such node")
	}
	n = nodes(t, 1, func(c *Config) { c.Dial = dial })[0]
	var at wire.Addr
	peer, at, _ = n.openPort(t, fabric.UnitRMA)
	close(ready)
	p := n.start(t, "asan", "peers", "ask", fmt.Sprint(at.Node), fmt.Sprint(at.VPID))
	if got := p.last(t); got != "done" {
		t.Errorf("%q", got)
	}
}

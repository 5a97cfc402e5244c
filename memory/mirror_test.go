package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/internal/shm"
	"exnet/memory"
	"exnet/memory/wire"
)

// liar is a node that has the memory which it lends itself, as if that was on other hosts, and does
// with it what a test wants.
type liar struct {
	t      *testing.T
	socket string
	all    sync.WaitGroup

	// grant may change the answer to a request for a lease; its memory is fd, -1: a window.
	grant func(m *wire.Message, fd int) int
	// late has a write wait for the next one, and be done after it.
	late fabric.NodeID

	mu     sync.Mutex
	refuse fabric.NodeID             // +checklocks:mu
	copies map[fabric.NodeID]*copied // +checklocks:mu
	silent map[fabric.NodeID]bool    // +checklocks:mu
	heard  sync.Cond                 // silent has changed; its lock is mu
}

// silence has nodes answer nothing, as lenders to which there is no link; without nodes, all
// answer.
func (l *liar) silence(nodes ...fabric.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.silent)
	for _, n := range nodes {
		l.silent[n] = true
	}
	l.heard.Broadcast()
}

// copied is a lease of a liar.
type copied struct {
	conn    *net.UnixConn
	window  []byte
	content []byte
}

func newLiar(t *testing.T, late fabric.NodeID, grant func(*wire.Message, int) int) *liar {
	t.Helper()
	l := &liar{t: t, socket: filepath.Join(t.TempDir(), "liar"), late: late, grant: grant, copies: make(map[fabric.NodeID]*copied), silent: make(map[fabric.NodeID]bool)}
	l.heard.L = &l.mu
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: l.socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.all.Go(func() {
		for {
			conn, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			l.all.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		l.silence()
		for n := range fabric.NodeID(3) {
			l.end(n)
		}
		l.all.Wait()
	})
	return l
}

// end ends the lease of a node, as when its lender dies.
func (l *liar) end(n fabric.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.copies[n]; c != nil {
		_ = unix.Shutdown(int(rawFd(l.t, c.conn)), unix.SHUT_RDWR) // it may have ended
	}
}

func rawFd(t *testing.T, conn *net.UnixConn) (fd uintptr) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = n })
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	return fd
}

func (l *liar) serve(conn *net.UnixConn) {
	defer conn.Close()
	b := make([]byte, wire.MessageSize)
	hear := func() (m wire.Message, ok bool) {
		n, err := conn.Read(b)
		return m, err == nil && m.UnmarshalBinary(b[:n]) == nil
	}
	say := func(m wire.Message, rights []byte) {
		b, _ := m.AppendBinary(nil)
		_, _, _ = conn.WriteMsgUnix(b, rights, nil) // it may have ended
	}
	m, ok := hear()
	if !ok {
		return
	}
	fd, err := unix.MemfdCreate("window", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, wire.WindowSize)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	c := &copied{conn: conn, content: make([]byte, m.B)}
	if err == nil {
		c.window, err = unix.Mmap(fd, 0, wire.WindowSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	defer unix.Munmap(c.window)
	node := m.Node
	l.mu.Lock()
	l.copies[node] = c
	l.mu.Unlock()
	m.Flags, m.A, m.E = wire.FlagFar, uint64(wire.Versions.Newest), 1
	lent := fd
	if l.grant != nil {
		lent = l.grant(&m, fd)
	}
	say(m, unix.UnixRights(lent))
	unix.Close(fd)
	for m, ok = hear(); ok && m.Op != wire.OpReturn; m, ok = hear() {
		todo := []wire.Message{m}
		if m.Op == wire.OpPut && node == l.late {
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if next, ok := hear(); ok {
				todo = []wire.Message{next, m}
			}
			_ = conn.SetReadDeadline(time.Time{})
		}
		for _, m := range todo {
			m.Status = l.do(node, c, m)
			say(m, nil)
		}
	}
}

// do does an operation.
func (l *liar) do(node fabric.NodeID, c *copied, m wire.Message) wire.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.silent[node] {
		l.heard.Wait()
	}
	slot := c.window[m.Number*wire.SlotSize:]
	switch {
	case m.Op == wire.OpGet:
		copy(slot, c.content[m.A:m.A+m.B])
	case node == l.refuse:
		return wire.StatusInvalid
	case m.Op == wire.OpPut:
		copy(c.content[m.A:], slot[:m.B])
	case m.Op == wire.OpZero:
		clear(c.content[m.A : m.A+m.B])
	}
	return wire.StatusOK
}

// A copy that refuses a write which another one has done is not used any more, whatever the reason:
// when the other is lost, what was written is lost, and not what it has replaced there again.
func TestMirrorRefuses(t *testing.T) {
	so := plugin(t)
	const size = 1 << 20
	for _, other := range []fabric.NodeID{1, 2} {
		l := newLiar(t, 0, nil)
		uri, end := serveSocket(t, l.socket, so, "size=1M", "mirror=1,2")
		before, _ := image(t, size)
		tool(t, true, "nbdcopy", before, uri)
		l.mu.Lock()
		l.refuse = 3 - other
		l.mu.Unlock()
		path, text := image(t, size)
		tool(t, true, "nbdcopy", path, uri)
		sameDevice(t, uri, text)
		l.end(other)
		if out := tool(t, false, "nbdcopy", uri, filepath.Join(t.TempDir(), "back")); !strings.Contains(out, "Input/output error") {
			t.Errorf("%s", out)
		}
		if said := end(); strings.Count(said, "is lost: an access was refused") != 1 {
			t.Errorf("%s", said)
		}
	}
}

// While a copy does not answer, another one is read at once, and what was written has both when it
// answers again.
func TestMirrorAway(t *testing.T) {
	so := plugin(t)
	for _, away := range []fabric.NodeID{1, 2} {
		l := newLiar(t, 0, nil)
		uri, end := serveSocket(t, l.socket, so, "size=1M", "mirror=1,2", "patience=3600")
		before, text := image(t, 1<<20)
		tool(t, true, "nbdcopy", before, uri)
		l.silence(away)
		tool(t, true, "timeout", "60", "nbdcopy", uri, filepath.Join(t.TempDir(), "back"))
		sameDevice(t, uri, text)
		path, text := image(t, 1<<20)
		written := make(chan error, 1)
		go func() { written <- exec.CommandContext(t.Context(), "nbdcopy", path, uri).Run() }()
		select {
		case <-written:
			t.Error("a write is answered that only one copy has")
		case <-time.After(300 * time.Millisecond):
		}
		l.silence()
		if err := <-written; err != nil {
			t.Error(err)
		}
		l.end(3 - away)
		sameDevice(t, uri, text)
		if said := end(); strings.Count(said, "is lost") != 1 || !strings.Contains(said, "its lender is gone") {
			t.Errorf("%s", said)
		}
	}
}

// A copy that answers nothing while another one does is lost. It is not read again: it has not what
// was written since. While no copy answers, none is lost.
func TestMirrorSilent(t *testing.T) {
	so := plugin(t)
	for _, gone := range []fabric.NodeID{1, 2} {
		l := newLiar(t, 0, nil)
		uri, end := serveSocket(t, l.socket, so, "size=1M", "mirror=1,2", "patience=1")
		l.silence(1, 2)
		path, text := image(t, 1<<20)
		written := make(chan error, 1)
		go func() { written <- exec.CommandContext(t.Context(), "nbdcopy", path, uri).Run() }()
		select {
		case <-written:
			t.Error("a write is answered that no copy has")
		case <-time.After(2 * time.Second):
		}
		l.silence(gone)
		if err := <-written; err != nil {
			t.Error(err)
		}
		sameDevice(t, uri, text)
		l.silence()
		sameDevice(t, uri, text)
		l.end(3 - gone)
		tool(t, false, "nbdcopy", uri, filepath.Join(t.TempDir(), "back"))
		if said := end(); strings.Count(said, fmt.Sprintf("the copy on node %d is lost: its lender does not answer", gone)) != 1 {
			t.Errorf("%s", said)
		}
	}
}

// Of writes to one place at the same time every copy has the same one last, however long each
// takes.
func TestMirrorOrder(t *testing.T) {
	so := plugin(t)
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip(err)
	}
	l := newLiar(t, 2, nil)
	uri, end := serveSocket(t, l.socket, so, "size=4K", "mirror=1,2")
	tool(t, true, "fio", "--name=order", "--ioengine=nbd", "--uri="+uri, "--rw=randwrite", "--norandommap", "--bs=4k", "--size=4k", "--io_size=32k",
		"--iodepth=2", "--refill_buffers", "--scramble_buffers=1", "--output=/dev/null")
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	if one, two := l.copies[1].content, l.copies[2].content; !bytes.Equal(one, two) || bytes.Count(one, []byte{0}) == len(one) {
		t.Error("the copies differ, or nothing was written")
	}
}

// However often its lender wants a lease back, the program is asked once; and not at all when it
// has returned it.
func TestRevokedTwice(t *testing.T) {
	l := newLiar(t, 0, nil)
	asked := make(chan time.Time, 8)
	node := fabric.NodeID(1)
	s, err := memory.Borrow(t.Context(), memory.Config{Socket: l.socket, Node: &node, Size: 1 << 20, OnRevoke: func(by time.Time) { asked <- by }})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	c := l.copies[node]
	l.mu.Unlock()
	for range 3 {
		b, _ := wire.Message{Op: wire.OpRevoke, C: 1}.AppendBinary(nil)
		if _, err := c.conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	// The answer of a read comes after all of them.
	if _, err := s.ReadAt(make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
	<-asked
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if len(asked) > 0 {
		t.Errorf("it was asked %d times more", len(asked))
	}
}

// memfd is shared memory of some bytes with flags and seals; it is closed with the test.
func memfd(t *testing.T, flags, size, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil && flags != 0 { // this kernel has no huge pages
		return memfd(t, 0, size, 0)
	}
	if err != nil {
		t.Error(err)
		return -1
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Error(err)
	}
	return fd
}

// A program refuses what is not the lease that it asked for: less, more, part of a page, a file of
// the lender's own (a read of it may never end), and a window whose pages may be missing.
func TestNoLease(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() }) // after those of the liars
	fd := int(file.Fd())
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	so := ""
	if _, err := exec.LookPath("nbdkit"); err == nil {
		so = plugin(t)
	}
	for what, grant := range map[string]func(m *wire.Message, fd int) int{
		"less":           func(m *wire.Message, fd int) int { m.B = 4096; return fd },
		"more":           func(m *wire.Message, fd int) int { m.B = 2 << 20; return fd },
		"part of a page": func(m *wire.Message, fd int) int { m.B--; return fd },
		"a file":         func(m *wire.Message, _ int) int { m.Flags = 0; return fd },
		"a short window": func(*wire.Message, int) int { return memfd(t, 0, wire.WindowSize-4096, unix.F_SEAL_SHRINK) },
		"may get short":  func(*wire.Message, int) int { return memfd(t, 0, wire.WindowSize, 0) },
		"huge pages":     func(*wire.Message, int) int { return memfd(t, unix.MFD_HUGETLB, wire.WindowSize, unix.F_SEAL_SHRINK) },
	} {
		l := newLiar(t, 0, grant)
		cfg := memory.Config{Socket: l.socket, Size: 1 << 20}
		if s, err := memory.Borrow(t.Context(), cfg); err == nil {
			_ = s.Close()
			t.Errorf("%s: it is a lease", what)
		} else if !errors.Is(err, wire.ErrMessage) && !errors.Is(err, shm.ErrSegment) {
			t.Errorf("%s: %v", what, err)
		}
		if so == "" {
			continue
		}
		if out := tool(t, false, "nbdkit", "-f", "-U", "-", so, "socket="+l.socket, "size=1M", "--run", "true"); !strings.Contains(out, "the node's answer makes no sense") {
			t.Errorf("%s: %s", what, out)
		}
	}
}

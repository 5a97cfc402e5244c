package ports

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/foreign"
	"exnet/internal/shm"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
	"exnet/ports/portstest"
)

// inPlace opens a port as if it were a user's, with a page in its place, in the file own instead of
// a process's memory.
func (n *node) inPlace(t *testing.T, a caller.Account, own int) wire.Addr {
	t.Helper()
	_, at, fds := n.openPort(t, fabric.UnitRMA)
	table, err := shm.MapShared(fds[3], wire.TableSize, wire.TableSize, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Retire()
	table.Memory().Words(0, 1)[0].Store(1<<39 | 1<<19)
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.ports[fabric.UnitRMA][at.VPID]
	p.account = a
	if p.memFD, err = rpc.Dup(own); err != nil {
		t.Fatal(err)
	}
	return at
}

// entries counts what a directory of /proc/self has.
func entries(t *testing.T, of string) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/" + of)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// A user's memory never answers, as in a file of FUSE (here it is a file that cannot be written),
// and one port after the other asks for it and goes. What that leaves behind is bounded, in threads
// and descriptors; who asks gets an answer; and the ports of others are served.
func TestHeldCopies(t *testing.T) {
	const evil, honest = 4711, 4712
	n := nodes(t, 1)[0]
	n.mu.Lock()
	n.copyTime = 300 * time.Millisecond
	n.mu.Unlock()
	var files [2]int
	for i := range files {
		var err error
		if files[i], err = sealedMemory("exnet-test", 1<<16); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(files[i])
	}
	end := holdWrites(t, files[0])
	defer end()
	bad, fine := n.inPlace(t, evil, files[0]), n.inPlace(t, honest, files[1])
	asks, _, _ := n.openPort(t, fabric.UnitRMA)
	put := func(to wire.Addr) wire.Status {
		m := wire.Message{Op: wire.OpTransfer, Addr: to, Unit: fabric.UnitRMA, A: wire.Base(to.VPID), B: 8, C: 1}
		return portstest.Ask(t, asks, m).Status
	}
	threads, descriptors := entries(t, "task"), entries(t, "fd")
	open, _ := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitRMA, A: wire.Version}.AppendBinary(nil)
	transfer, _ := wire.Message{Op: wire.OpTransfer, Addr: bad, Unit: fabric.UnitRMA, A: wire.Base(bad.VPID), B: 8, C: 1}.AppendBinary(nil)
	const attacks = 300
	for range attacks {
		conn := n.dial(t)
		for _, b := range [][]byte{open, transfer} {
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
		for err == nil {
			var fds rpc.Descriptors
			_, fds, err = in.Next()
			fds.Close()
		}
		conn.Close()
	}
	eventually(t, "the ports stay", func() bool { return len(n.Ports()) == 3 })
	n.mu.Lock()
	u := n.copies.users[evil]
	if u == nil || u.running != copiesPerUser || len(u.waiting) > copiesWaiting || n.copies.all != copiesPerUser {
		t.Errorf("%+v, %d in all", u, n.copies.all)
	}
	n.mu.Unlock()
	if now := entries(t, "task"); now > threads+copiesPerUser+16 {
		t.Errorf("%d threads after %d attacks, %d before", now, attacks, threads)
	}
	if now := entries(t, "fd"); now > descriptors+2*(copiesPerUser+copiesWaiting)+16 {
		t.Errorf("%d descriptors after %d attacks, %d before", now, attacks, descriptors)
	}
	for range 100 {
		if got := put(fine); got != wire.StatusOK {
			t.Fatalf("another user's memory: status %d", got)
		}
	}
	// Its own transfers wait for those that are held, or are too many: they are answered.
	if got := put(bad); got != wire.StatusDenied && got != wire.StatusFull {
		t.Errorf("its own: status %d", got)
	}
	end()
	eventually(t, "copies are left", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.copies.users) == 0 && n.copies.all == 0
	})
	if got := put(bad); got != wire.StatusOK {
		t.Errorf("then: status %d", got)
	}
}

// A transfer that was answered does not touch the window any more: the next one may be using it.
func TestAnsweredTransfer(t *testing.T) {
	fd, err := sealedMemory("exnet-test", wire.MemorySize)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	window, err := shm.MapShared(fd, wire.MemorySize, wire.MemorySize, unix.F_SEAL_SHRINK, true)
	if err != nil {
		t.Fatal(err)
	}
	defer window.Retire()
	answers := 0
	tr := &transfer{m: wire.Message{B: 8}, window: window, timer: time.NewTimer(time.Hour), end: func(wire.Status) { answers++ }}
	touched := func() bool { return tr.useWindow(func(foreign.Memory) {}) }
	if !touched() {
		t.Error("before it is answered")
	}
	tr.answerOnce(wire.StatusDenied)
	tr.answerOnce(wire.StatusOK)
	if touched() || answers != 1 {
		t.Errorf("%d answers", answers)
	}
}

// Copies are bounded in all, too; root's are not, and whoever waits has its turn.
func TestCopiesInAll(t *testing.T) {
	s := New(Config{Node: 1})
	end := make(chan struct{})
	ran := make(chan struct{}, 10000)
	run := func() { <-end; ran <- struct{}{} }
	begin := func(a caller.Account) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.copyLocked(a, run)
	}
	begun := 0
	for a := caller.Account(1); ; a++ {
		for range copiesPerUser {
			if !begin(a) {
				goto full
			}
			begun++
		}
	}
full:
	if begun != copiesMax {
		t.Errorf("%d run, want %d", begun, copiesMax)
	}
	for range copiesWaiting {
		if !begin(1) {
			t.Fatal("a user's do not wait for it")
		}
		begun++
	}
	if begin(1) {
		t.Error("too many wait")
	}
	for range 2 * copiesWaiting {
		if !begin(caller.Root) {
			t.Fatal("root's are refused")
		}
		begun++
	}
	close(end)
	for range begun {
		<-ran
	}
	eventually(t, "copies are left", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.copies.users) == 0 && s.copies.all == 0
	})
}

package shm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/rma"
)

// Messages to another process that sleeps between them: all arrive, in order.
func TestProcessOrder(t *testing.T) {
	for _, kind := range []string{"", driven} {
		t.Run(kind, func(t *testing.T) { testOrder(t, kind) })
	}
}

func testOrder(t *testing.T, kind string) {
	const total = 100000
	p := spawn(t, fmt.Sprint(kind, "count:", total))
	credit := make(chan struct{}, 1)
	p.velo.OnCredit(func(fabric.NodeID) {
		select {
		case credit <- struct{}{}:
		default:
		}
	})
	fabrictest.Eventually(t, "mailbox", func() bool { return p.velo.Credits(1, vpid) > 0 })
	msg := make([]byte, 40)
	for n := uint64(0); n < total; {
		binary.LittleEndian.PutUint64(msg, n)
		switch err := p.velo.Send(toPeer(1), msg); {
		case err == nil:
			n++
		case errors.Is(err, fabric.ErrAgain):
			<-credit
		default:
			t.Fatal(err)
		}
	}
	var got int
	if p.line(t, &got); got != total {
		t.Errorf("%d messages of %d", got, total)
	}
}

func TestProcessTransfers(t *testing.T) {
	const size = 200 << 10
	p := spawn(t, fmt.Sprint("serve:", size))
	var source, sink uint64
	p.line(t, &source)
	p.line(t, &sink)
	mem, err := p.nic.ATU().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	local, err := p.nic.ATU().Register(vpid, mem, atu.Read|atu.Write)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	get := func(remote uint64, n int) {
		t.Helper()
		clear(mem[:n])
		if err := p.rma.Get(rma.GetReq{Local: local.NLA(), Remote: atu.NLA(remote), Len: n, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter}); err != nil {
			t.Fatal(err)
		}
		var note rma.Notification
		fabrictest.Eventually(t, "completer", func() (ok bool) { note, ok = p.rma.Next(); return ok })
		if note.Status != fabric.StatusOK || !bytes.Equal(mem[:n], want[:n]) {
			t.Errorf("GET of %d bytes: %+v, or wrong data", n, note)
		}
	}
	pattern(want, 1)
	for _, n := range []int{1, 64, 4096, 65536, size} {
		get(source, n)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 9, 64, 65, 4096, 65536, size} {
		for i := range n {
			want[i] = byte(rng.Uint32())
		}
		copy(mem, want[:n])
		if err := p.rma.Put(rma.PutReq{Local: local.NLA(), Remote: atu.NLA(sink), Len: n, Node: 1, VPID: vpid, Notify: rma.NotifyRequester}); err != nil {
			t.Fatal(err)
		}
		fabrictest.Eventually(t, "requester", func() bool { note, ok := p.rma.Next(); return ok && note.Status == fabric.StatusOK })
		get(sink, n)
	}
}

// The other process is killed at some moment while everything is under way. The
// link is down soon, each operation ends once, nothing is left.
func TestProcessKilled(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	fds := descriptors(t)
	for round := range rounds {
		role := []string{"serve:65536", "flood", "sleep"}[round%3]
		if round%2 == 1 {
			role = driven + role
		}
		p := spawn(t, role)
		var nla, sink uint64
		if round%3 == 0 {
			p.line(t, &nla)
			p.line(t, &sink)
		}
		mem, err := p.nic.ATU().Alloc(65536) // several GETs write there at a time
		if err != nil {
			t.Fatal(err)
		}
		local, err := p.nic.ATU().Register(vpid, mem, atu.Read|atu.Write)
		if err != nil {
			t.Fatal(err)
		}
		lent := fabrictest.Register(t, p.nic, vpid, 65536, atu.Read)
		if _, err := lent.Lend(1); err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		var started, ended atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() { // operations
			for {
				req := rma.GetReq{Local: local.NLA(), Remote: atu.NLA(nla), Len: 65536, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter}
				if err := p.rma.Get(req); err == nil {
					started.Add(1)
				} else if errors.Is(err, fabric.ErrNoRoute) && stop.Load() {
					return
				}
				for {
					n, ok := p.rma.Next()
					if !ok {
						break
					}
					ended.Add(1)
					if n.Status != fabric.StatusOK && n.Status != fabric.StatusPeerDown && n.Status != fabric.StatusProtection {
						t.Errorf("%+v", n)
					}
				}
			}
		})
		wg.Go(func() { // messages
			for !stop.Load() {
				if err := p.velo.Send(toPeer(1), []byte("x")); err != nil && !errors.Is(err, fabric.ErrAgain) &&
					!errors.Is(err, fabric.ErrPeerDown) && !errors.Is(err, fabric.ErrNoRoute) {
					t.Error(err)
				}
				for {
					if _, _, ok := p.velo.Peek(); !ok {
						break
					}
					p.velo.Advance()
				}
			}
		})
		time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.link.Done():
		case <-time.After(3 * time.Minute):
			t.Fatal("the link is not down")
		}
		if err := p.link.Err(); !errors.Is(err, fabric.ErrPeerDown) {
			t.Errorf("link: %v", err)
		}
		stop.Store(true)
		wg.Wait()
		fabrictest.Eventually(t, "end of all operations", func() bool {
			for {
				if _, ok := p.rma.Next(); !ok {
					break
				}
				ended.Add(1)
			}
			return ended.Load() == started.Load()
		})
		if !local.Revoke() || !lent.Revoke() {
			t.Error("a region stays busy")
		}
		p.bytes.Close()
		_ = p.cmd.Wait() // it was killed
		if err := p.nic.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || strings.Contains(string(maps), "memfd:exnet-link") {
		t.Errorf("segments are still mapped (%v)", err)
	}
	fabrictest.Eventually(t, "closed descriptors", func() bool { return descriptors(t) <= fds })
}

func descriptors(tb testing.TB) int {
	tb.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil &&
			(strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "/memfd:")) {
			n++
		}
	}
	return n
}

// A stopped process costs its senders ErrAgain, and nothing else; it goes on where
// it was.
func TestProcessStopped(t *testing.T) {
	p := spawn(t, "echo")
	fabrictest.Eventually(t, "mailbox", func() bool { return p.velo.Credits(1, vpid) > 0 })
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus // until all its threads have stopped
	if _, err := unix.Wait4(p.cmd.Process.Pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatal(err, ws)
	}
	sent := 0
	for range 1000 {
		if err := p.velo.Send(toPeer(1), []byte("x")); err == nil {
			sent++
		} else if !errors.Is(err, fabric.ErrAgain) {
			t.Fatal(err)
		}
	}
	if sent != 128 {
		t.Errorf("%d messages were taken, want the 128 that there are credits for", sent)
	}
	time.Sleep(50 * time.Millisecond)
	if err := p.link.Err(); err != nil {
		t.Errorf("link: %v", err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range sent {
		fabrictest.Eventually(t, "echo", func() bool { _, _, ok := p.velo.Peek(); return ok })
		p.velo.Advance()
	}
}

// A link without traffic uses no CPU.
func TestProcessIdle(t *testing.T) {
	for _, kind := range []string{"", driven} {
		t.Run(kind, func(t *testing.T) { testIdle(t, kind) })
	}
}

func testIdle(t *testing.T, kind string) {
	p := spawn(t, kind+"sleep")
	time.Sleep(20 * time.Millisecond)
	used := func() time.Duration {
		var ru unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	// What else the process has to do, such as collecting garbage, ends; what the link
	// did would go on.
	var d time.Duration
	var n uint64
	for range 20 {
		before, woken := used(), p.link.Stats().Wakeups
		time.Sleep(300 * time.Millisecond)
		d, n = used()-before, p.link.Stats().Wakeups-woken
		if d <= 15*time.Millisecond && n == 0 {
			return
		}
	}
	t.Errorf("%v of CPU in 300 ms, woken %d times", d, n)
}

func TestHello(t *testing.T) {
	good := func(size int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	sealed := func(size int) int {
		fd := good(size)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	const size = shm.SegmentSize
	for _, tt := range []struct {
		name  string
		hello []byte
		fds   []int
		want  error
	}{
		{"nothing", nil, nil, shm.ErrHello},
		{"short", []byte("exnetshm"), nil, shm.ErrHello},
		{"another program", []byte("GET / HTTP/1.0\r\n\r\n                    "), nil, shm.ErrHello},
		{"another version", shm.Hello(2, 1, size, 4096), []int{sealed(size), sealed(4096)}, shm.ErrVersion},
		{"the same node", shm.Hello(1, 0, size, 4096), []int{sealed(size), sealed(4096)}, fabric.ErrInUse},
		{"no descriptors", shm.Hello(1, 1, size, 4096), nil, shm.ErrHello},
		{"one descriptor", shm.Hello(1, 1, size, 4096), []int{sealed(size)}, shm.ErrHello},
		{"three descriptors", shm.Hello(1, 1, size, 4096), []int{sealed(size), sealed(4096), sealed(4096)}, shm.ErrHello},
		{"nine descriptors", shm.Hello(1, 1, size, 4096), []int{0, 0, 0, 0, 0, 0, 0, 0, 0}, shm.ErrHello},
		{"another size", shm.Hello(1, 1, size+4096, 4096), []int{sealed(size), sealed(4096)}, shm.ErrHello},
		{"not sealed", shm.Hello(1, 1, size, 4096), []int{good(size), sealed(4096)}, shm.ErrHello},
		{"arena not sealed", shm.Hello(1, 1, size, 4096), []int{sealed(size), good(4096)}, shm.ErrHello},
		{"segment too small", shm.Hello(1, 1, size, 4096), []int{sealed(4096), sealed(4096)}, shm.ErrHello},
		{"arena too large", shm.Hello(1, 1, size, 1<<40), []int{sealed(size), sealed(4096)}, shm.ErrHello},
		{"arena empty", shm.Hello(1, 1, size, 0), []int{sealed(size), sealed(0)}, shm.ErrHello},
		{"no memfd", shm.Hello(1, 1, size, 4096), []int{0, 0}, shm.ErrHello},
		{"good", shm.Hello(1, 1, size, 4096), []int{sealed(size), sealed(4096)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := descriptors(t)
			a, b := fabrictest.Sockets(t, unix.SOCK_STREAM)
			if tt.hello != nil {
				var rights []byte
				if tt.fds != nil {
					rights = unix.UnixRights(tt.fds...)
				}
				if _, _, err := b.WriteMsgUnix(tt.hello, rights, nil); err != nil {
					t.Fatal(err)
				}
			}
			timeout := 30 * time.Second
			if len(tt.hello) < len(shm.Hello(1, 1, size, 4096)) { // for the rest of it
				timeout = 50 * time.Millisecond
			}
			l, err := shm.Connect(fabrictest.NewNIC(t, 0), a, shm.Config{HelloTimeout: timeout})
			if tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("%v, want %v", err, tt.want)
			}
			for _, fd := range tt.fds {
				if fd > 2 {
					unix.Close(fd)
				}
			}
			b.Close()
			if l != nil {
				<-l.Done()
			}
			if n := descriptors(t); n > before+1 { // the NIC's arena
				t.Errorf("%d descriptors, %d before", n, before)
			}
		})
	}
}

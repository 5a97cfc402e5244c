package pool_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/leaktest"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
	"exnet/memory/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/rpctest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// program is a borrower that keeps no rule.
type program struct {
	t    *testing.T
	conn *net.UnixConn
	in   *rpc.Inbound
}

func connect(t *testing.T, f *pooltest.Fabric) *program {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: f.Socket(0), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		t.Fatal(err)
	}
	return &program{t, conn, in}
}

func (p *program) say(m wire.Message) {
	p.t.Helper()
	b, _ := m.AppendBinary(nil)
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// hear returns the next message; false: the node has ended the connection.
func (p *program) hear() (m wire.Message, fd int, ok bool) {
	p.t.Helper()
	b, fds, err := p.in.Next()
	if err != nil {
		return m, -1, false
	}
	if err := m.UnmarshalBinary(b); err != nil {
		p.t.Fatal(err)
	}
	fd = -1
	if len(fds) > 0 {
		fd = fds.Take(0)
		p.t.Cleanup(func() { unix.Close(fd) })
	}
	return m, fd, true
}

func (p *program) borrow(size uint64) (fd int) {
	p.t.Helper()
	p.say(wire.Message{Op: wire.OpBorrow, A: uint64(wire.Versions.Newest), B: size})
	m, fd, ok := p.hear()
	if !ok || m.Status != wire.StatusOK || fd < 0 {
		p.t.Fatalf("%+v, %v", m, ok)
	}
	return fd
}

func idle(t *testing.T, s *pool.Server) {
	t.Helper()
	for late := time.Now().Add(time.Minute); len(s.Status().Lent) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("leases have not ended")
		}
	}
}

// Processes send descriptors that take an hour to close, in place of a request, beside one, and
// without that the node ever reads them. Their leases end, and so does what the node runs for each.
func TestSlowToClose(t *testing.T) {
	f := pooltest.New(t, pool.Config{Limits: pool.Limits{Lend: 8 << 20}})
	before := runtime.NumGoroutine()
	served := make(chan error)
	const users = 8
	var ends []func()
	for i := range users {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		conn, theirs := connOf(t, pair[0]), connOf(t, pair[1])
		slow := func() int {
			fd, end := rpctest.Lingers(t)
			ends = append(ends, end)
			return fd
		}
		borrow, _ := wire.Message{Op: wire.OpBorrow, A: uint64(wire.Versions.Newest), B: 1 << 20, Flags: wire.FlagNode}.AppendBinary(nil)
		back, _ := wire.Message{Op: wire.OpReturn}.AppendBinary(nil)
		switch i % 4 {
		case 0:
			rpctest.Send(t, theirs, borrow, slow())
		case 1:
			rpctest.Send(t, theirs, borrow)
			rpctest.Send(t, theirs, []byte("nothing"), slow(), slow(), slow(), slow(), slow(), slow())
		case 2:
			rpctest.Send(t, theirs, borrow)
			rpctest.Send(t, theirs, back, slow())
		case 3:
			rpctest.Send(t, theirs, []byte("nothing"))
			rpctest.Send(t, theirs, borrow, slow())
		}
		theirs.Close()
		// Only now: whoever closes last takes an hour.
		go func() { served <- f.Nodes[0].Process(conn) }()
	}
	for range users {
		select {
		case err := <-served:
			if err == nil {
				t.Error("a process that breaks the rules is no error")
			}
		case <-time.After(time.Minute):
			t.Fatal("the node waits for a descriptor to be closed")
		}
	}
	idle(t, f.Nodes[0])
	for late := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+1; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d goroutines wait", runtime.NumGoroutine()-before)
		}
	}
	for _, end := range ends {
		end()
	}
}

// A program that only looks whether there is a node is no error.
func TestLook(t *testing.T) {
	f := pooltest.New(t, pool.Config{})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := connOf(t, pair[0])
	unix.Close(pair[1])
	if err := f.Nodes[0].Process(conn); err != nil {
		t.Error(err)
	}
}

func connOf(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	file := os.NewFile(uintptr(fd), "pair")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn)
}

// A borrower on the lender's host keeps the descriptor and the mapping of a lease that was revoked:
// it reaches nothing by them, the memory is free, and another one's lease is not there.
func TestKeepsDescriptor(t *testing.T) {
	f := pooltest.New(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 1 << 20}})
	p := connect(t, f)
	fd := p.borrow(1 << 20)
	mem, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	copy(mem, "mine")
	if _, err := unix.Pwrite(fd, []byte{1}, 1<<20); !errors.Is(err, unix.EPERM) {
		t.Errorf("a write past the end: %v", err)
	}
	f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, time.Millisecond) // it does not answer
	if m, _, ok := p.hear(); !ok || m.Op != wire.OpRevoke {
		t.Errorf("%+v", m)
	}
	if m, _, ok := p.hear(); !ok || m.Op != wire.OpGone || m.Status != wire.StatusRevoked {
		t.Errorf("%+v", m)
	}
	other := connect(t, f)
	theirs := other.borrow(1 << 20) // all that there is
	if _, err := unix.Pwrite(theirs, []byte("theirs"), 0); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := unix.Pread(fd, b, 0); n != 0 || err != nil {
		t.Errorf("it still reads %q, %v", b[:n], err)
	}
	for what, err := range map[string]error{
		"write":    func() error { _, err := unix.Pwrite(fd, b, 0); return err }(),
		"truncate": unix.Ftruncate(fd, 1<<20),
		"allocate": unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks != 0 {
		t.Errorf("%d blocks, %v", st.Blocks, err)
	}
}

// Messages that break the rules end the lease of who sends them, and nobody else's.
func TestBreaksRules(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...pool.Config) *pooltest.Fabric{"near": pooltest.New, "far": pooltest.NewFar} {
		t.Run(name, func(t *testing.T) {
			f := start(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 8 << 20}})
			good := connect(t, f)
			good.borrow(1 << 20)
			messages := map[string]wire.Message{
				"borrow again":        {Op: wire.OpBorrow, A: uint64(wire.Versions.Newest), B: 4096},
				"a node's":            {Op: wire.OpLend, A: uint64(wire.Versions.Newest), B: 4096},
				"no such operation":   {Op: 999},
				"a slot past the end": {Op: wire.OpGet, Number: wire.Slots, B: 1},
				"the last of several": {Op: wire.OpPut, Number: wire.Slots - 1, B: wire.SlotSize + 1},
			}
			if name == "near" {
				messages["no window"] = wire.Message{Op: wire.OpGet, B: 1}
			}
			for what, m := range messages {
				p := connect(t, f)
				p.borrow(1 << 20)
				p.say(m)
				if got, _, ok := p.hear(); ok {
					t.Errorf("%s: %+v", what, got)
				}
			}
			for what, m := range map[string]wire.Message{
				"before a lease": {Op: wire.OpReturn}, "hello": {Op: wire.OpHello},
			} {
				p := connect(t, f)
				p.say(m)
				if got, _, ok := p.hear(); ok {
					t.Errorf("%s: %+v", what, got)
				}
			}
			p := connect(t, f)
			next := connect(t, f)
			next.say(wire.Message{Op: wire.OpBorrow, A: uint64(wire.Versions.Oldest), F: uint64(wire.Versions.Newest) + 1, B: 4096})
			if got, _, ok := next.hear(); !ok || got.Status != wire.StatusOK || got.A != uint64(wire.Versions.Newest) {
				t.Errorf("a process of the next release: %+v", got)
			}
			next.conn.Close()
			p.say(wire.Message{Op: wire.OpBorrow, A: uint64(wire.Versions.Newest) + 1, B: 4096})
			if got, _, ok := p.hear(); !ok || got.Status != wire.StatusVersion || got.A != uint64(wire.Versions.Newest) {
				t.Errorf("another version: %+v", got)
			}
			for len(f.Nodes[1].Status().Lent) != 1 { // the good one's
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// Offsets past the end of a lease of another host are refused, and a revoked lease's NLA is refused
// by the lender's NIC.
func TestFarOffsets(t *testing.T) {
	f := pooltest.NewFar(t, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 8 << 20}})
	p := connect(t, f)
	p.borrow(4 << 20)
	for what, m := range map[string]wire.Message{
		"past the end":   {Op: wire.OpGet, A: 4 << 20, B: 1},
		"over the end":   {Op: wire.OpPut, A: 4<<20 - 1, B: 2},
		"far away":       {Op: wire.OpGet, A: 1 << 63, B: 4096},
		"it wraps":       {Op: wire.OpGet, A: 1<<64 - 4096, B: 8192},
		"nothing":        {Op: wire.OpPut},
		"too much":       {Op: wire.OpGet, B: wire.Span*wire.SlotSize + 1},
		"too much, last": {Op: wire.OpGet, Number: wire.Slots - 1, B: 4 << 20},
		"zero, unwhole":  {Op: wire.OpZero, A: 1, B: 4096},
		"zero, past end": {Op: wire.OpZero, A: 4 << 20, B: 4096},
	} {
		p.say(m)
		if got, _, ok := p.hear(); !ok || got.Op != m.Op || got.Status != wire.StatusInvalid {
			t.Errorf("%s: %+v, %v", what, got, ok)
		}
	}
	f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, time.Millisecond)
	for {
		m, _, ok := p.hear()
		if !ok {
			t.Fatal("the node has ended the connection")
		}
		if m.Op == wire.OpGone {
			break
		}
	}
	idle(t, f.Nodes[1])
	p.say(wire.Message{Op: wire.OpGet, B: 4096})
	if got, _, ok := p.hear(); !ok || got.Op != wire.OpGet || got.Status != wire.StatusRevoked {
		t.Errorf("after it was revoked: %+v, %v", got, ok)
	}
}

package ports

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/internal/shm"
	"exnet/node/rpc"
	"exnet/ports/portstest"
)

// give sends OpReach with a file, and returns the answer.
func give(t *testing.T, conn *net.UnixConn, f *os.File) wire.Status {
	t.Helper()
	b, _ := wire.Message{Op: wire.OpReach}.AppendBinary(nil)
	if _, _, err := conn.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		t.Fatal(err)
	}
	b, fds, err := in.Next()
	fds.Close()
	var m wire.Message
	if err == nil {
		err = m.UnmarshalBinary(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Status
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A process gives its own memory to the node, and nothing else: not that of another process, nor
// what only looks like memory.
func TestReachRefuses(t *testing.T) {
	n := nodes(t, 1)[0]
	conn, _, _ := n.openPort(t, fabric.UnitRMA)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	files := []*os.File{w, open(t, "/dev/null"), open(t, "/proc/self/comm")}
	if os.Geteuid() == 0 {
		files = append(files, open(t, fmt.Sprintf("/proc/%d/mem", os.Getppid())))
	}
	for _, f := range files {
		if got := give(t, conn, f); got != wire.StatusDenied {
			t.Errorf("%s: status %d", f.Name(), got)
		}
	}
	if got := give(t, conn, open(t, "/proc/self/mem")); got != wire.StatusOK {
		t.Errorf("its own: status %d", got)
	}
	if got := give(t, conn, open(t, "/proc/self/mem")); got != wire.StatusDenied {
		t.Errorf("twice: status %d", got)
	}
}

// What a process says about its memory harms itself only, and other users do not reach it.
func TestTransferRefuses(t *testing.T) {
	n := nodes(t, 1)[0]
	owner, at, own := n.openPort(t, fabric.UnitRMA)
	asks, _, fds := n.openPort(t, fabric.UnitRMA)
	table, err := shm.MapShared(own[3], wire.TableSize, wire.TableSize, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Retire()
	mem, err := unix.Mmap(-1, 0, 2*wire.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	// The third page leads nowhere, and the fourth to what cannot be.
	page := uint64(uintptr(unsafe.Pointer(&mem[0]))) / wire.PageSize
	entries := table.Memory().Words(0, 5)
	for i, p := range []uint64{page, page + 1, 1, 1<<36 - 1} {
		entries[i].Store(1<<39 | p&(1<<20-1)<<19 | p>>20<<40)
	}
	do := func(conn *net.UnixConn, off, size, how uint64) wire.Status {
		return portstest.Ask(t, conn, wire.Message{Op: wire.OpTransfer, Addr: at, Unit: fabric.UnitRMA, A: wire.Base(at.VPID) + off, B: size, C: how}).Status
	}
	want := bytes.Repeat([]byte("window"), 100)
	if _, err := unix.Pwrite(fds[2], want, wire.WindowOff); err != nil {
		t.Fatal(err)
	}
	if got := do(asks, 0, 10, 1); got != wire.StatusNoPort {
		t.Errorf("memory that the node does not have: status %d", got)
	}
	if got := give(t, owner, open(t, "/proc/self/mem")); got != wire.StatusOK {
		t.Fatal(got)
	}
	if got := do(asks, 4000, 600, 1); got != wire.StatusOK || !bytes.Equal(mem[4000:4600], want) {
		t.Errorf("status %d", got)
	}
	for _, tt := range []struct {
		off, size uint64
		want      wire.Status
	}{
		{8192, 1, wire.StatusDenied},
		{12288, 1, wire.StatusDenied},
		{8000, 400, wire.StatusDenied},
		{16384, 1, wire.StatusInvalid},
		{0, 16385, wire.StatusInvalid},
		{0, 0, wire.StatusInvalid},
		{0, wire.WindowSize + 1, wire.StatusInvalid},
		{0, ^uint64(0), wire.StatusInvalid},
		{1<<30 - 1, 2, wire.StatusInvalid},
		{^uint64(0), 1, wire.StatusInvalid},
	} {
		for how := range uint64(2) {
			if got := do(asks, tt.off, tt.size, how); got != tt.want {
				t.Errorf("%d bytes at %d, %d: status %d, want %d", tt.size, tt.off, how, got, tt.want)
			}
		}
	}
	if r := portstest.Ask(t, owner, wire.Message{Op: wire.OpProtect, A: 3}); r.Status != wire.StatusOK {
		t.Fatalf("%+v", r)
	}
	if got := do(asks, 0, 8, 0); got != wire.StatusDenied {
		t.Errorf("another protection ID: status %d", got)
	}
}

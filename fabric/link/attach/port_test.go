package attach

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
)

// pair returns the ends of a socket as that of a node is.
func pair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends
}

// Who waits for an answer is told when there is no room for its descriptors.
func TestAnswerWithoutRoom(t *testing.T) {
	ends := pair(t)
	c := make(chan answer, 1)
	p := &port{
		unit: fabric.UnitVELO, conn: ends[0],
		answers: map[uint32]chan answer{7: c}, grants: make(map[wire.Addr]*grant),
	}
	p.in.Store(new([]*inflow))
	b, _ := wire.Message{Op: wire.OpConnect, Number: 7, Unit: fabric.UnitVELO, Addr: wire.Addr{Node: 1, VPID: wire.FirstVPID}}.AppendBinary(nil)
	if _, _, err := ends[1].WriteMsgUnix(b, unix.UnixRights(0, 0), nil); err != nil {
		t.Fatal(err)
	}
	_ = ends[1].Close()
	free, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(free)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	p.read() // to the end of the node
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	switch a, ok := <-c; {
	case !ok:
		t.Error("the answer is lost")
	case !errors.Is(a.err, fabric.ErrPeerDown) || errors.Is(a.err, fabric.ErrAgain) || a.grant != nil:
		t.Errorf("%v", a.err)
	}
}

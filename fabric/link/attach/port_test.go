package attach

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
	"exnet/fabric/rma"
	"exnet/internal/shm"
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

// successor is a NIC on which a port's endpoint closes, and another one opens, just as a message or
// notification looks for it.
type successor struct {
	port       *port
	got, ended int
}

func (s *successor) AcceptFlow(fabric.NodeID, fabric.VPID, fabric.VPID, link.Credit) (link.Flow, error) {
	s.port.endAs(portShut)
	return s, nil
}

func (s *successor) Tell(_ fabric.VPID, _ rma.Notification, isOurs func() bool) bool {
	s.port.endAs(portShut)
	if isOurs() {
		s.got++
	}
	return false
}

func (s *successor) Reserve() (*[link.VELOPayload]byte, uint64, error) {
	return new([link.VELOPayload]byte), 0, nil
}
func (s *successor) Commit(uint64, uint64) { s.got++ }
func (s *successor) Raise()                {}
func (s *successor) ID() uint16            { return 0 }
func (s *successor) Limit() int            { return 1 }
func (s *successor) End()                  { s.ended++ }

// sealed returns a memfd of some size, which the test closes.
func sealed(t *testing.T, size int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	if err := errors.Join(unix.Ftruncate(fd, int64(size)), err); err != nil {
		t.Fatal(err)
	}
	return fd
}

// What has arrived for an endpoint that closes is not its successor's.
func TestSuccessorGetsNothing(t *testing.T) {
	for _, unit := range []wire.Unit{fabric.UnitVELO, fabric.UnitRMA} {
		n, size := wire.Slots(unit)
		ends := pair(t)
		p := &port{unit: unit, vpid: wire.FirstVPID, conn: ends[0]}
		nic := &successor{port: p}
		p.link = &Link{nic: nic}
		var err error
		if p.page, err = shm.MapShared(sealed(t, wire.PageSize), wire.PageSize, wire.PageSize, unix.F_SEAL_SHRINK, true); err != nil {
			t.Fatal(err)
		}
		whole := wire.FlowHeader + n*size
		mem, err := shm.MapShared(sealed(t, whole), whole, whole, unix.F_SEAL_SHRINK, true)
		if err != nil {
			t.Fatal(err)
		}
		f := newInflow(p, wire.Addr{Node: 1, VPID: wire.FirstVPID}, mem, n, size)
		p.in.Store(&[]*inflow{f})
		status := uint64(1)<<flowLen | wire.Phase
		if unit == fabric.UnitRMA {
			status = 16 | 1<<8 | wire.Phase
			words(f.slot(), 16).Store(writerCompleter<<noteWriter | commandPut<<noteCommand)
		}
		words(f.slot(), 0).Store(status)
		p.poll()
		p.poll()
		if nic.got > 0 {
			t.Errorf("%v: the successor has got what came for another", unit)
		}
		if unit == fabric.UnitVELO && nic.ended == 0 {
			t.Error("the flow to the successor was not ended")
		}
	}
}

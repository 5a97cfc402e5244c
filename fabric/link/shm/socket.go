package shm

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/shm"
)

// socket is the own end of the connected socket. Either the Go runtime waits for it
// (conn), or a driver does (fd): with both, each bell would wake both.
//
// Concurrency: ring and hangUp may be called from many goroutines; the others, and
// conn, belong to whoever serves the link.
type socket struct {
	conn *net.UnixConn
	bell func(fd uintptr) bool // made once: rings

	mu  sync.RWMutex    // held for reading while a system call uses the socket
	raw syscall.RawConn // guarded by mu; of conn
	fd  int             // guarded by mu; -1: the runtime has it
}

func (s *socket) takeSocket(conn *net.UnixConn) (err error) {
	s.conn, s.fd = conn, -1
	s.bell = func(fd uintptr) bool { shm.Ring(int(fd)); return true }
	if s.raw, err = conn.SyscallConn(); err != nil {
		return fmt.Errorf("shm: connect: %w", err)
	}
	return nil
}

// detach takes the socket from the runtime.
func (s *socket) detach() error {
	fd, err := -1, error(nil)
	cerr := s.raw.Control(func(c uintptr) { fd, err = unix.FcntlInt(c, unix.F_DUPFD_CLOEXEC, 0) })
	if cerr != nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("shm: connect: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.Close() // the duplicate stays, and the runtime's poller forgets it
	s.fd = fd
	return nil
}

// restore gives the socket back to the runtime.
func (s *socket) restore() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := os.NewFile(uintptr(s.fd), "shm")
	s.fd = -1
	c, err := net.FileConn(f) // has a duplicate
	_ = f.Close()
	if err != nil {
		return fmt.Errorf("shm: socket: %w", err)
	}
	s.conn = c.(*net.UnixConn)
	s.raw, err = s.conn.SyscallConn()
	return err
}

// ring wakes the other side.
func (s *socket) ring() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd >= 0 {
		shm.Ring(s.fd)
		return
	}
	_ = s.raw.Write(s.bell) // closed: nobody is to be woken
}

// hangUp tells the other side that nothing more comes, and ends a Read of conn. An
// error means that the socket is as good as closed.
func (s *socket) hangUp() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd >= 0 {
		_ = unix.Shutdown(s.fd, unix.SHUT_WR)
		return
	}
	_ = s.conn.CloseWrite()
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

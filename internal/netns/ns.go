package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrClosed says that the namespace was closed. The caller uses the namespace after it has
// closed it.
var ErrClosed = errors.New("namespace is closed")

// NS is a network namespace.
//
// Concurrency: all methods may be called from many goroutines.
type NS struct {
	file *os.File // nsfs handle; keeps the namespace alive

	closed   chan struct{} // closed by Close
	mu       sync.Mutex
	isClosed bool
	spawn    chan spawnRequest // nil until the first Start
}

type spawnRequest struct {
	cmd *exec.Cmd
	err chan error
}

// New makes a namespace. It has a loopback interface, which is down.
func New() (*NS, error) {
	var file *os.File
	var err error
	onThread(func() bool {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			file, err = os.Open(threadNS)
		}
		return false // in another namespace now: let the thread die
	})
	if err != nil {
		return nil, fmt.Errorf("netns: creating a network namespace: %w%s", err, createHint(err))
	}
	return newNS(file), nil
}

// Open returns the existing namespace at path, such as the Path of another NS, also of another
// process, or a path in /run/netns. Entering it needs CAP_SYS_ADMIN in the user namespace that
// it belongs to.
func Open(path string) (*NS, error) {
	// Does not wait if path is a FIFO.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	n := newNS(file)
	if !isNetNS(n.Fd()) {
		return nil, errors.Join(fmt.Errorf("netns: %s is not a network namespace", path), n.Close())
	}
	return n, nil
}

// From returns the namespace of an open handle, which it takes.
func From(file *os.File) *NS { return newNS(file) }

// isNetNS reports whether fd is a handle of a network namespace. The ioctl means
// something on nsfs only (ioctl_nsfs(2)).
func isNetNS(fd int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return false
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	return err == nil && kind == unix.CLONE_NEWNET
}

func newNS(file *os.File) *NS {
	return &NS{file: file, closed: make(chan struct{})}
}

// Fd returns the namespace's descriptor, which is valid until Close.
func (n *NS) Fd() int { return int(n.file.Fd()) }

// Inode returns the namespace's inode number, which no other namespace has at the same time; 0
// after Close.
func (n *NS) Inode() uint64 {
	st, err := n.file.Stat()
	if err != nil {
		return 0
	}
	return st.Sys().(*syscall.Stat_t).Ino
}

// Path returns a path of the namespace for other programs, as in
// "nsenter --net=PATH ip addr". It is valid until Close.
func (n *NS) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd())
}

// Do runs f in the namespace, on a goroutine and thread of its own, and returns
// its error. f may block; sockets that it opens stay in the namespace.
func (n *NS) Do(f func() error) error {
	var err error
	onThread(func() (restored bool) {
		var home *os.File
		if home, err = os.Open(threadNS); err != nil {
			err = fmt.Errorf("netns: %w", err)
			return true
		}
		defer home.Close()
		if err = n.enterThread(); err != nil {
			return true
		}
		// A deferred return covers runtime.Goexit (testing.T.FailNow) in f.
		err = errors.New("netns: the function did not return")
		defer func() { restored = unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil }()
		err = f()
		return
	})
	return err
}

// SetSysctl writes a parameter of the namespace. name is its path below /proc/sys/net, as
// ipv4/ip_forward (Linux, Documentation/networking/ip-sysctl.rst).
func (n *NS) SetSysctl(name, value string) error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// enterThread moves the calling thread into the namespace.
func (n *NS) enterThread() error {
	raw, err := n.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("netns: %w", ErrClosed)
	}
	var setErr error
	// Control keeps the descriptor open (and so its number ours) for the call.
	if err := raw.Control(func(fd uintptr) { setErr = unix.Setns(int(fd), unix.CLONE_NEWNET) }); err != nil {
		return fmt.Errorf("netns: %w", ErrClosed)
	}
	if setErr != nil {
		return fmt.Errorf("netns: entering a network namespace: %w%s", setErr, createHint(setErr))
	}
	return nil
}

// Close releases the namespace. The kernel kills the programs in it that Start began, unless
// their Pdeathsig is another signal, and frees the namespace with the last process and socket
// in it. Close is idempotent.
func (n *NS) Close() error {
	n.mu.Lock()
	if n.isClosed {
		n.mu.Unlock()
		return nil
	}
	n.isClosed = true
	close(n.closed)
	n.mu.Unlock()

	return n.file.Close()
}

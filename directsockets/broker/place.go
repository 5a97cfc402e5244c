package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
)

const lockSuffix = ".lock"

// DefaultPath is where a broker of the calling thread's namespace has its socket:
// in /run/exn/ds for root, else in the user's runtime directory. It makes the
// directory.
func DefaultPath() (string, error) {
	name, err := client.SocketName()
	if err != nil {
		return "", err
	}
	if os.Geteuid() == 0 {
		// In a user namespace root may not write there.
		if err := makeDir(client.SystemDir, 0o755); err == nil {
			return filepath.Join(client.SystemDir, name), nil
		}
	}
	dir := client.UserDir()
	return filepath.Join(dir, name), makeDir(dir, 0o700)
}

// makeDir makes a directory that nobody else may write, and the two above it as far
// as they are missing.
func makeDir(dir string, mode fs.FileMode) error {
	for tries := 1; ; tries++ {
		err := tryDir(dir, mode)
		// The last broker may have removed it, or the one above it, just now.
		if !errors.Is(err, fs.ErrNotExist) || tries == 10 {
			return err
		}
	}
}

// tryDir is makeDir, once.
func tryDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(dir)), mode); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	for _, path := range []string{filepath.Dir(dir), dir} {
		err := os.Mkdir(path, mode)
		if err == nil {
			err = os.Chmod(path, mode) // whatever the umask is
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("broker: %w", err)
		}
		if err := client.CheckDir(path); err != nil {
			return err
		}
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("broker: %w", &os.PathError{Op: "access", Path: dir, Err: err})
	}
	return nil
}

// place is a broker's socket. It belongs to the broker as long as that holds the lock.
type place struct {
	path   string
	lock   *os.File
	ln     *net.UnixListener
	cookie uint64 // of the namespace
	made   bool   // the directory is DefaultPath's
}

// takePlace makes the socket in the calling thread's namespace, in place of one that a killed
// broker left. ErrInUse: there is a broker.
func takePlace(path string) (p *place, err error) {
	p = &place{path: path}
	for tries := 1; p.lock == nil; tries++ {
		if path == "" {
			if p.path, err = DefaultPath(); err != nil {
				return nil, err
			}
			Sweep(filepath.Dir(p.path))
		}
		p.lock, err = lockFile(p.path)
		// The last broker may have removed the directory just now.
		if err != nil && (path != "" || !errors.Is(err, fs.ErrNotExist) || tries == 10) {
			return nil, err
		}
	}
	p.made = path == ""
	path = p.path
	defer func() {
		if err != nil {
			err = errors.Join(err, p.removeSocket())
			p = nil
		}
	}()
	// Who finds a keeper's socket that refuses waits for the next broker.
	for _, left := range []string{path, strings.TrimSuffix(path, client.SocketSuffix) + client.KeepSuffix} {
		if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, fmt.Errorf("broker: %w", err)
		}
	}
	if p.ln, err = net.ListenUnix(client.Network, &net.UnixAddr{Name: path, Net: client.Network}); err != nil {
		return p, fmt.Errorf("broker: %w", err)
	}
	p.ln.SetUnlinkOnClose(false) // it is removed under the lock
	// Any local user may use root's, each for its own sockets only.
	mode := fs.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666
	}
	if err := os.Chmod(path, mode); err != nil {
		return p, fmt.Errorf("broker: %w", err)
	}
	raw, err := p.ln.SyscallConn()
	if err != nil {
		return p, err
	}
	if ctlErr := raw.Control(func(fd uintptr) { p.cookie, err = netnsCookie(int(fd)) }); ctlErr != nil {
		return p, ctlErr
	}
	return p, err
}

// sweepTime is how long a broker that begins waits for Sweep, which has its lock for a moment.
const sweepTime = 10 * time.Second

// lockFile locks the lock of a socket.
func lockFile(path string) (*os.File, error) {
	name := strings.TrimSuffix(path, client.SocketSuffix) + lockSuffix
	for end := time.Now().Add(sweepTime); ; {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("broker: %w", err)
		}
		fd := int(f.Fd())
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isAt(f, name) {
			return f, nil
		}
		// The last broker has removed it meanwhile, or Sweep has it, which shares it.
		swept := err == unix.EWOULDBLOCK && unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) == nil && time.Now().Before(end)
		f.Close()
		switch {
		case err == nil:
		case swept:
			time.Sleep(time.Millisecond)
		case err == unix.EWOULDBLOCK:
			return nil, fmt.Errorf("%w, with the socket %s", ErrInUse, path)
		default:
			return nil, fmt.Errorf("broker: %w", &os.PathError{Op: "flock", Path: name, Err: err})
		}
	}
}

// removeSocket removes the socket.
func (p *place) removeSocket() error {
	var errs []error
	if p.ln != nil {
		if err := p.ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
		errs = append(errs, ignoreMissing(os.Remove(p.path)))
	}
	errs = append(errs, ignoreMissing(os.Remove(p.lock.Name())), p.lock.Close())
	if dir := filepath.Dir(p.path); p.made && os.Remove(dir) == nil && strings.HasPrefix(dir, "/tmp/") {
		_ = os.Remove(filepath.Dir(dir)) // or there is something else in it
	}
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Sweep removes the sockets of killed brokers in a directory: those of namespaces that
// are gone have no other broker to do it. "": in root's directory and the user's.
func Sweep(dir string) {
	if dir == "" {
		Sweep(client.SystemDir)
		dir = client.UserDir()
	}
	for _, path := range []string{filepath.Dir(dir), dir} {
		if client.CheckDir(path) != nil {
			return // it is not there, or leads to where somebody else wants
		}
	}
	locks, err := filepath.Glob(filepath.Join(dir, "*"+lockSuffix))
	if err != nil {
		return
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // it is gone, or another's
		}
		sweepOne(f, name)
		f.Close()
	}
}

// sweepOne removes the socket of the lock f if its broker is gone, and nobody else is removing it.
// The name may belong to another lock by now: the broker has removed its own, and a new one of the
// namespace has begun. A broker that begins meanwhile sees that the lock is shared, so no broker
// has it.
func sweepOne(f *os.File, name string) {
	fd := int(f.Fd())
	if unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) != nil ||
		unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil || !isAt(f, name) {
		return
	}
	_ = os.Remove(strings.TrimSuffix(name, lockSuffix) + client.SocketSuffix)
	_ = os.Remove(name)
}

// isAt reports whether a file is the one at a path.
func isAt(f *os.File, path string) bool {
	here, err1 := f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(here, there)
}

// descriptorLimit is how many descriptors this process may have.
func descriptorLimit() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil || r.Cur > 1<<30 {
		return 1 << 30
	}
	return int(r.Cur)
}

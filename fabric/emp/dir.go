package emp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// systemBase is where the fabrics of a host are. Users without root have theirs
// in their runtime directory.
const systemBase = "/run/exn"

// Modes of the directory. With a group, what is made in it belongs to the group
// (set-group-ID), so that its members can connect and clean up.
const (
	modeUser  = 0o700
	modeGroup = 0o770 | fs.ModeSetgid
	fileUser  = 0o600
	fileGroup = 0o660
)

const (
	lockName = "lock"
	// lockWait is how long another node may hold the lock. A change takes
	// milliseconds, unless the node is stopped. When many nodes start or end at
	// once, they wait longer for their turn, up to lockQueue.
	lockWait  = 5 * time.Second
	lockQueue = 2 * time.Minute
	// lockPause is how long a node that waits sleeps between two looks, at most.
	lockPause = 16 * time.Millisecond
	// madeMark is the content of the lock file if EMP made the directory, which
	// it then removes with the last node.
	madeMark = "made by exnet\n"
)

// maxSocketPath is the longest path of a Unix socket (unix(7)).
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// DefaultDir returns the directory of a fabric: in /run/exn for root and for
// those who may use it there, else in $XDG_RUNTIME_DIR/exn.
func DefaultDir(fabric string) (string, error) {
	if err := CheckName(fabric); err != nil {
		return "", err
	}
	system := filepath.Join(systemBase, fabric)
	if os.Geteuid() == 0 && !inUserNS() || unix.Access(system, unix.R_OK|unix.W_OK|unix.X_OK) == nil {
		return system, nil
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if runtime == "" {
		return "", fmt.Errorf("emp: %w: fabric %s has no directory, because XDG_RUNTIME_DIR is not set: name one with --dir, or run as root", ErrConfig, fabric)
	}
	return filepath.Join(runtime, "exn", fabric), nil
}

// inUserNS reports whether this process is in a user namespace of its own, where
// root is not the host's.
func inUserNS() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false // a kernel without user namespaces
	}
	return strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// CheckName returns ErrConfig, wrapped, if name cannot name a fabric. It accepts names
// that need no quoting in any shell.
func CheckName(name string) error {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if name == "" || len(name) > 32 || strings.Trim(name, plain) != "" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") {
		return fmt.Errorf("emp: %w: fabric name %q: use up to 32 letters, digits, '.', '_' and '-', beginning with a letter or digit", ErrConfig, name)
	}
	if name == "ds" {
		return fmt.Errorf("emp: %w: fabric name %q: /run/exn/ds is for direct sockets; choose another", ErrConfig, name)
	}
	return nil
}

// dir is the meeting point.
type dir struct {
	path  string
	group bool // the group of the directory may join
	gid   uint32
	// foreign is whether users of other user namespaces may join.
	foreign bool
}

// joinDir returns the directory. It makes the directory if needed, and opens it for a group.
func joinDir(path, group string) (*dir, error) {
	path, err := dirPath(path)
	if err != nil {
		return nil, err
	}
	if err := makeDir(path, group); err != nil {
		return nil, err
	}
	return openDir(path)
}

// dirPath returns the absolute path of a directory. It must leave room for names of sockets.
func dirPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("emp: %w", err)
	}
	if longest := filepath.Join(path, "node-65535.sock"); len(longest) > maxSocketPath {
		return "", fmt.Errorf("emp: %w: the path of directory %s is %d bytes too long for a socket: choose a shorter one", ErrConfig, path, len(longest)-maxSocketPath)
	}
	return path, nil
}

// openDir returns an existing directory.
func openDir(path string) (*dir, error) {
	path, err := dirPath(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, dirError(err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("emp: %w: %s is not a directory", ErrConfig, path)
	}
	if st.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("emp: %w: everybody may write to %s: run chmod o-w on it, or choose another directory", ErrConfig, path)
	}
	var sys unix.Stat_t
	if err := unix.Stat(path, &sys); err != nil {
		return nil, dirError(&os.PathError{Op: "stat", Path: path, Err: err})
	}
	return &dir{path: path, group: st.Mode().Perm()&0o070 == 0o070, gid: sys.Gid, foreign: inUserNS()}, nil
}

// makeDir makes the directory unless it is there, and opens it for a group.
func makeDir(path, group string) error {
	gid := -1
	if group != "" {
		var err error
		if gid, err = groupID(group); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return dirError(err)
	}
	err := os.Mkdir(path, modeUser)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return dirError(err)
	}
	if gid >= 0 && (made || !openFor(path, gid)) {
		if err := os.Chown(path, -1, gid); err != nil {
			return dirError(err)
		}
		if err := os.Chmod(path, modeGroup); err != nil {
			return dirError(err)
		}
	}
	if !made {
		return nil
	}
	if err := os.WriteFile(filepath.Join(path, lockName), []byte(madeMark), fileUser); err != nil {
		os.Remove(filepath.Join(path, lockName))
		os.Remove(path)
		return dirError(err)
	}
	return nil
}

// openFor reports whether the directory is a group's already.
func openFor(path string, gid int) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().Perm()&0o070 == 0o070 && gidOf(path) == gid
}

func gidOf(path string) int {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return -1
	}
	return int(st.Gid)
}

func groupID(name string) (int, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("emp: %w: group %q does not exist: groupadd %[2]s, or name another", ErrConfig, name)
	}
	return strconv.Atoi(g.Gid)
}

// fileNames returns the names of the files in the directory, sorted.
func (d *dir) fileNames() ([]string, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// file returns the path of a file in the directory.
func (d *dir) file(name string) string { return filepath.Join(d.path, name) }

// openFile opens a regular file for reading. Members of the group may have put anything
// there, so it does not follow a link and does not block on a FIFO.
func (d *dir) openFile(name string) (*os.File, error) {
	f, err := os.OpenFile(d.file(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: d.file(name), Err: errors.Join(err, unix.EINVAL)}
	}
	return f, nil
}

// createFile makes a new file in place of what is at path, and never opens an existing one.
func (d *dir) createFile(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, d.fileMode())
}

// fileMode is the mode of the files in it.
func (d *dir) fileMode() os.FileMode {
	if d.group {
		return fileGroup
	}
	return fileUser
}

// lock keeps others from changing anything until the file is closed.
func (d *dir) lock() (*os.File, error) {
	path := d.file(lockName)
	begun := time.Now()
	moved, last := begun, unix.Timespec{} // when the lock last changed hands, and its time then
	for pause := time.Millisecond; ; pause = min(2*pause, lockPause) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, d.fileMode())
		if err != nil {
			return nil, dirError(err)
		}
		// The umask may have taken the group's rights; where the file is another's,
		// that one has done it.
		_ = f.Chmod(d.fileMode())
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, path) {
			// The changed time tells waiting nodes that there is progress.
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), nil, 0)
			return f, nil
		}
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil && st.Mtim != last {
			moved, last = time.Now(), st.Mtim
		}
		f.Close()
		switch {
		case err == nil: // the last node has removed the file meanwhile
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, dirError(&os.PathError{Op: "flock", Path: path, Err: err})
		case time.Since(moved) > lockWait || time.Since(begun) > lockQueue:
			return nil, fmt.Errorf("emp: %s has been locked for %v: find the process that holds it with fuser %[1]s", path, time.Since(begun).Round(time.Second))
		default:
			time.Sleep(pause)
		}
	}
}

func sameFile(f *os.File, path string) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	here, err := f.Stat()
	return err == nil && os.SameFile(here, there)
}

// removeIfEmpty removes the directory if EMP made it and it has no more nodes. The
// caller holds the lock.
func (d *dir) removeIfEmpty(lock *os.File) {
	text, err := io.ReadAll(io.NewSectionReader(lock, 0, int64(len(madeMark))))
	if err != nil || string(text) != madeMark {
		return
	}
	names, err := d.fileNames()
	if err != nil || len(names) != 1 { // the lock
		return
	}
	if unix.Faccessat(unix.AT_FDCWD, filepath.Dir(d.path), unix.W_OK, unix.AT_EACCESS) != nil {
		return // it is for another user to remove, who finds the mark
	}
	if os.Remove(d.file(lockName)) == nil && os.Remove(d.path) == nil && filepath.Base(filepath.Dir(d.path)) == "exn" {
		_ = os.Remove(filepath.Dir(d.path)) // fails while there are other fabrics
	}
}

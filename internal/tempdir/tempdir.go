// Package tempdir makes temporary directories that do not stay when the process that has one is
// killed: the next process that makes one of its kind removes it.
//
// # Architecture
//
// A directory is held by a lock on it, which ends with its process. New removes those of this user
// and this kind that nobody holds.
//
//	TMPDIR/dsbench-1234567890.tmp   flock(2) by its process
//	TMPDIR/dsbench-2345678901.tmp   nobody has locked it: it goes
//
// # Concurrency
//
// All functions may be called at the same time, even by many processes.
package tempdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// suffix ends the names, so that nothing is removed that some other program made.
const suffix = ".tmp"

var (
	mu sync.Mutex
	// locks are descriptors of the directories that this process holds, -1 where the file system
	// has no locks for directories. Belongs to mu.
	locks = make(map[string]int)
)

// New makes a directory that only this user may look into, for files of one kind, whose name is in
// the directory's. It is in os.TempDir, or where nothing can be written there, in another place for
// files that last no longer than the system runs. The caller calls Remove.
func New(kind string) (dir string, err error) {
	bases := append([]string{os.TempDir()}, others...)
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" {
		bases = append(bases, run)
	}
	var first error
	for _, base := range bases {
		if dir, err = newIn(base, kind); err == nil {
			return dir, nil
		}
		if first == nil {
			first = err
		}
		if !slices.ContainsFunc(unwritable, func(e error) bool { return errors.Is(err, e) }) {
			break
		}
	}
	if named := os.Getenv("TMPDIR"); named != "" && errors.Is(first, fs.ErrNotExist) {
		return "", missing(named)
	}
	return "", first
}

// missing is the value of TMPDIR, where nothing is.
type missing string

// Error implements error.
func (m missing) Error() string { return fmt.Sprintf("TMPDIR=%s does not exist", string(m)) }

// Is says that it is fs.ErrNotExist, as the kernel's error is.
func (m missing) Is(err error) bool { return err == fs.ErrNotExist }

// Do calls f with a directory as New makes it, and removes it.
func Do(kind string, f func(dir string) error) error {
	dir, err := New(kind)
	if err != nil {
		return err
	}
	return errors.Join(f(dir), Remove(dir))
}

// unwritable are the errors of a place where nothing can be written.
var unwritable = []error{unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOSPC, unix.EDQUOT}

// others are places beside os.TempDir that any user may write to.
var others = []string{"/tmp", "/var/tmp", "/dev/shm"}

func newIn(base, kind string) (dir string, err error) {
	sweep(base, kind)
	for {
		if dir, err = os.MkdirTemp(base, kind+"-*"+suffix); err != nil {
			return "", err
		}
		fd, err := lockDir(dir)
		if errors.Is(err, errSwept) {
			continue
		}
		if err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
		mu.Lock()
		defer mu.Unlock()
		locks[dir] = fd
		return dir, nil
	}
}

// Remove removes a directory that New has made, with all that is in it.
func Remove(dir string) error {
	mu.Lock()
	fd, held := locks[dir]
	delete(locks, dir)
	mu.Unlock()
	err := os.RemoveAll(dir)
	if held && fd >= 0 {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// errSwept says that somebody else has a directory, or has removed it.
var errSwept = errors.New("somebody else has locked it")

// lockDir locks a directory, and returns the descriptor that holds the lock; -1: there are no
// locks.
func lockDir(dir string) (fd int, err error) {
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return -1, errSwept
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		unix.Close(fd)
		return -1, errSwept
	case err != nil:
		unix.Close(fd)
		return -1, nil
	}
	var here, there unix.Stat_t
	if unix.Fstat(fd, &here) != nil || unix.Lstat(dir, &there) != nil || here.Dev != there.Dev || here.Ino != there.Ino {
		unix.Close(fd) // it was removed before it was locked
		return -1, errSwept
	}
	return fd, nil
}

// sweep removes the directories of a kind that nobody holds.
func sweep(base, kind string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		digits, ours := strings.CutPrefix(e.Name(), kind+"-")
		digits, temporary := strings.CutSuffix(digits, suffix)
		if !ours || !temporary || strings.Trim(digits, "0123456789") != "" || !e.IsDir() {
			continue
		}
		dir := filepath.Join(base, e.Name())
		if info, err := os.Lstat(dir); err != nil || !ownedByUser(info) {
			continue
		}
		if fd, err := lockDir(dir); err == nil && fd >= 0 {
			_ = os.RemoveAll(dir) // what cannot be removed stays
			unix.Close(fd)
		}
	}
}

// ownedByUser reports whether it is this user's. Root leaves others' alone, too.
func ownedByUser(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

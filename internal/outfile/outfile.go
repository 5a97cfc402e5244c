// Package outfile writes the files that a user names on a command line. What was there before stays
// until all of the new text is written.
//
// # Architecture
//
//	a regular file, or no file   written beside it, then renamed; after an error the old one stays
//	a device, a pipe, a FIFO     written as it is; never removed
//	this process's own output    written where it is: other output may be in that file, too
//	a Live file                  written as it is, so that others can read it meanwhile; what was there
//	                             stays until the first byte
//
// # Concurrency
//
// A File has one user at a time. Functions may be called from many goroutines.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// perm is the mode of a new file, before the umask.
const perm = 0o666

// File is a file under way. Its user ends it with Commit or Discard.
type File struct {
	name string
	file *os.File
	// path is what file takes the place of when it is whole; "": it is written as it is.
	path string
}

// Create begins to write the file of that name. It follows symbolic links. For a FIFO it waits for
// a reader.
func Create(name string) (*File, error) {
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = name, nil // a link to nothing is replaced
	}
	if err != nil {
		return nil, named(name, err)
	}
	if info, err := os.Stat(path); err == nil {
		f, err := asItIs(path, info)
		if err != nil {
			return nil, named(name, err)
		}
		if f != nil {
			return &File{name: name, file: f}, nil
		}
	}
	f, err := beside(path)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil, fmt.Errorf("%w: the new file is written in the folder of %s", named(filepath.Dir(path), err), name)
	}
	if err != nil {
		return nil, named(name, err)
	}
	return &File{name: name, file: f, path: path}, nil
}

// beside makes a file in the same folder, with the mode of the one that is there and its owner, as
// far as this process may give it.
func beside(path string) (*os.File, error) {
	for {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".exnet-%d-%x.tmp", os.Getpid(), time.Now().UnixNano()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if info, gone := os.Stat(path); err == nil && gone == nil {
			if err = f.Chmod(info.Mode().Perm()); err != nil {
				err = errors.Join(err, f.Close(), os.Remove(name))
			} else if old, ok := info.Sys().(*syscall.Stat_t); ok && !shared(filepath.Dir(path)) {
				_ = f.Chown(int(old.Uid), int(old.Gid)) // else it is this user's
			}
		}
		return f, err
	}
}

// shared reports whether anybody may make files in a folder, as in /tmp. There, who has made a file
// of some name does not get what is written under that name.
func shared(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode()&os.ModeSticky != 0 && info.Mode().Perm()&0o002 != 0
}

// asItIs opens what must not be replaced; nil: a new file may take the old one's place.
func asItIs(path string, info fs.FileInfo) (*os.File, error) {
	for _, output := range []*os.File{os.Stdout, os.Stderr} {
		if has, err := output.Stat(); err == nil && os.SameFile(has, info) {
			fd, err := unix.FcntlInt(output.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			return os.NewFile(uintptr(fd), path), nil
		}
	}
	if info.Mode().IsRegular() {
		return nil, nil
	}
	return os.OpenFile(path, os.O_WRONLY, 0)
}

// Write implements io.Writer.
func (f *File) Write(b []byte) (int, error) {
	n, err := f.file.Write(b)
	if err != nil {
		err = named(f.name, err)
	}
	return n, err
}

// Commit ends the file: it is there as a whole, or the old one is still there.
func (f *File) Commit() error {
	var err error
	if f.path != "" {
		err = f.file.Sync()
	}
	err = errors.Join(err, f.file.Close())
	if err == nil && f.path != "" {
		err = os.Rename(f.file.Name(), f.path)
		if errors.Is(err, unix.EBUSY) {
			return errors.Join(fmt.Errorf("%s is a mount point, which no new file can replace: name another file", f.name), f.Discard())
		}
	}
	if err != nil {
		return errors.Join(named(f.name, err), f.Discard())
	}
	f.path = "" // nothing is to be discarded any more
	return nil
}

// Discard ends the file without what was written: the old one stays. After Commit it does nothing.
func (f *File) Discard() error {
	err := f.file.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	if f.path != "" {
		err = errors.Join(err, os.Remove(f.file.Name()))
		f.path = ""
	}
	return err
}

// Write writes the file of that name by a function. A reader of a pipe that has read enough is no
// error, as for standard output.
func Write(name string, write func(io.Writer) error) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		if f.path == "" && errors.Is(err, syscall.EPIPE) {
			err = nil
		}
		return errors.Join(err, f.Discard())
	}
	return f.Commit()
}

// WriteText writes the file of that name.
func WriteText(name string, text []byte) error {
	return Write(name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// named says which of the user's files an error is about, and not which temporary one.
func named(name string, err error) error {
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if errno, ok := cause.(syscall.Errno); ok {
			err = errno
		}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Package outfile writes the files that a user names on a command line. What was there before stays
// until all of the new text is written.
//
// # Architecture
//
//	a regular file, or no file   written beside it, then renamed; after an error the old one stays
//	a device, a pipe, a FIFO     written as it is; never removed
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

	"github.com/google/renameio/v2"
)

// perm is the mode of a new file, before the umask.
const perm = 0o666

// File is a file under way. Its user ends it with Commit or Discard.
type File struct {
	name string
	file *os.File
	// pending is nil where the file is written as it is.
	pending *renameio.PendingFile
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
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, named(name, err)
		}
		return &File{name: name, file: f}, nil
	}
	p, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(perm), renameio.WithExistingPermissions())
	if err != nil {
		return nil, named(name, err)
	}
	return &File{name: name, file: p.File, pending: p}, nil
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
	err := f.file.Close
	if f.pending != nil {
		err = f.pending.CloseAtomicallyReplace
	}
	if err := err(); err != nil {
		return errors.Join(named(f.name, err), f.Discard())
	}
	return nil
}

// Discard ends the file without what was written: the old one stays. After Commit it does nothing.
func (f *File) Discard() error {
	if f.pending != nil {
		return f.pending.Cleanup()
	}
	if err := f.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Write writes the file of that name by a function. A reader of a pipe that has read enough is no
// error, as for standard output.
func Write(name string, write func(io.Writer) error) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		if f.pending == nil && errors.Is(err, syscall.EPIPE) {
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

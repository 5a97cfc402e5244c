// Package infile reads files that users name: no path makes a command wait for ever or fill the
// memory, as a FIFO that nobody writes and /dev/zero would.
package infile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// Max bounds what Read reads, in bytes.
const Max = 256 << 20

// Errors of a path.
var (
	ErrKind  = errors.New("neither a file nor a pipe")
	ErrEmpty = errors.New("a pipe that nobody has written to")
)

// devNull is the number of /dev/null, the device that is an empty file.
const devNull = 1<<8 | 3

// File is an open file or pipe.
type File struct {
	*os.File
	waits bool // it is a pipe through which nothing has come yet
}

// Open opens a file or a pipe (/dev/stdin, bash's <(command)) to be read. It does not wait for a
// writer.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&fs.ModeDevice != 0 && info.Sys().(*syscall.Stat_t).Rdev != devNull {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrKind}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &File{File: f, waits: info.Mode()&fs.ModeNamedPipe != 0}, nil
}

// Read reads as io.Reader has it. The error wraps ErrEmpty if it is a pipe that was empty.
func (f *File) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	if n == 0 && err == io.EOF && f.waits {
		return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: ErrEmpty}
	}
	f.waits = f.waits && n == 0
	return n, err
}

// Read reads a whole file or pipe of at most Max bytes, as Open opens it.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if info.Size() > Max { // a pipe has no size
		return nil, tooLong(path)
	}
	text, err := io.ReadAll(io.LimitReader(f, Max+1))
	if err == nil && len(text) > Max {
		err = tooLong(path)
	}
	return text, err
}

func tooLong(path string) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("longer than %d MiB", Max>>20)}
}

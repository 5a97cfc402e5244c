package tun

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenError(t *testing.T) {
	for _, tt := range []struct {
		err  unix.Errno
		want string
	}{
		{unix.EACCES, "chmod 666 /dev/net/tun"},
		{unix.EPERM, "run as root"},
		{unix.ENOENT, "modprobe tun"},
		{unix.ENODEV, "modprobe tun"},
		{unix.EMFILE, "too many open files"},
	} {
		err := openError(&os.PathError{Op: "open", Path: clonePath, Err: tt.err})
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), clonePath) {
			t.Errorf("%v: %v, want it to say %q", tt.err, err, tt.want)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: more than one line", err)
		}
	}
}

func TestAttachError(t *testing.T) {
	for _, tt := range []struct {
		err  unix.Errno
		is   error
		want string
	}{
		{unix.EBUSY, ErrNameTaken, "ip link del exn0"},
		{unix.EPERM, ErrUnavailable, "CAP_NET_ADMIN"},
		{unix.EINVAL, unix.EINVAL, "exn0"},
	} {
		if err := attachError("exn0", tt.err); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
	if !errors.Is(attachError("exn0", unix.EPERM), fs.ErrPermission) {
		t.Error("EPERM is not a permission error any more")
	}
}

func TestIOErrors(t *testing.T) {
	for _, tt := range []struct {
		errno       unix.Errno
		read, write error
	}{
		{unix.EAGAIN, ErrAgain, ErrAgain},
		{unix.EIO, ErrGone, ErrDown},
		{unix.EBADFD, ErrGone, ErrGone},
		{unix.EINVAL, unix.EINVAL, ErrMalformed},
		{unix.EMSGSIZE, unix.EMSGSIZE, ErrMalformed},
		{unix.ENOBUFS, unix.ENOBUFS, unix.ENOBUFS},
	} {
		if got := readError(tt.errno); got != tt.read {
			t.Errorf("read, %v: %v, want %v", tt.errno, got, tt.read)
		}
		if got := writeError(tt.errno); got != tt.write {
			t.Errorf("write, %v: %v, want %v", tt.errno, got, tt.write)
		}
	}
}

package pager

import (
	"errors"
	"fmt"
	"os"

	"exnet/memory/pager/uffd"

	"golang.org/x/sys/unix"
)

// Errors of Check. Each says what to do.
var (
	ErrNoFaults = errors.New("pager: this kernel has no userfaultfd (CONFIG_USERFAULTFD)")
	ErrDenied   = errors.New("pager: userfaultfd is denied: run as root, or set the sysctl vm.unprivileged_userfaultfd to 1")
	ErrRights   = errors.New("pager: paging takes CAP_SYS_PTRACE, to follow a program's forks: run as root")
	ErrOld      = errors.New("pager: userfaultfd of this kernel is too old (UFFDIO_MOVE): it takes Linux 6.8")
	ErrPageSize = errors.New("pager: only pages of 4 KiB are known")
)

// Check looks whether this host and this user can page programs.
func Check() error {
	if os.Getpagesize() != pageSize {
		return ErrPageSize
	}
	f, err := uffd.New()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return ErrNoFaults
	case errors.Is(err, unix.EPERM):
		return ErrDenied
	case err != nil:
		return fmt.Errorf("pager: userfaultfd: %w", err)
	}
	defer unix.Close(int(f))
	switch err := f.Handshake(); {
	case errors.Is(err, unix.EPERM):
		return ErrRights
	case errors.Is(err, unix.EINVAL):
		return ErrOld
	case err != nil:
		return fmt.Errorf("pager: userfaultfd: %w", err)
	}
	return nil
}

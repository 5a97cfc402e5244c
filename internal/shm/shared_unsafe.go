package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// SharedSeals are those of a segment that both sides write: nobody resizes the
// file, and nobody adds a seal. FixedSeals are those that a mapping needs at least.
const (
	SharedSeals = FixedSeals | unix.F_SEAL_SEAL
	FixedSeals  = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
)

// CreateShared makes a segment of size bytes, a multiple of the page size, that
// whoever gets the descriptor may map for writing too.
func CreateShared(name string, size int) (*Foreign, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	s, err := createSegment(fd, size, SharedSeals)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &Foreign{s}, s.reserveAll()
}

// MapShared maps a segment that CreateShared of another process made, all of it,
// for reading, and for writing if write is set. It borrows fd. The error wraps
// ErrSegment if the descriptor cannot be trusted: it lacks one of the seals, or its
// size is not in [min, max].
//
// The memory is that of ordinary pages: a file of huge pages, of which there may
// be none when one is touched, would raise SIGBUS and is refused.
func MapShared(fd, min, max, seals int, write bool) (*Foreign, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: no memfd: %v", ErrSegment, err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("%w: seals %#x", ErrSegment, got)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("shm: fstatfs: %w", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("%w: file system %#x", ErrSegment, fs.Type)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: fstat: %w", err)
	}
	if st.Size < int64(min) || st.Size > int64(max) || st.Size <= 0 || st.Size%PageSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrSegment, st.Size)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	s, err := mapSegment(fd, int(st.Size), prot)
	if errors.Is(err, unix.EPERM) { // sealed against writing as well
		return nil, fmt.Errorf("%w: %v", ErrSegment, err)
	}
	if err != nil {
		return nil, err
	}
	return &Foreign{s}, nil
}

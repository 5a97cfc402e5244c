package ports

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
)

// sealedMemory makes a memfd whose size is sealed.
func sealedMemory(name string, size int) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("ports: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("ports: memory of %d bytes: %w", size, err), unix.Close(fd))
	}
	return fd, nil
}

// isMemory returns whether a descriptor from a process is memory as made by sealedMemory, which
// peers may map.
func isMemory(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return false
	}
	size, err := rpc.SealedSize(fd)
	return err == nil && size == wire.MemorySize
}

// reopen returns another descriptor of a memfd or pipe, with a mode and flags of its own. Only
// the node's user and root can open the file anew.
func reopen(fd, mode int) (int, error) {
	err := unix.Fchmod(fd, 0o600)
	if err == nil {
		fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), mode|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("ports: another descriptor: %w", err)
	}
	return fd, nil
}

// readWord reads a word that a process may have written. It returns 0 if it cannot read it.
func readWord(fd int, off int64) uint64 {
	var b [8]byte
	if n, err := unix.Pread(fd, b[:], off); n != len(b) || err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// allocatedBytes returns how many bytes of a port's memory are allocated.
func allocatedBytes(fd int) uint64 {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return 0
	}
	return uint64(st.Blocks) * 512
}

// closeAll closes descriptors; -1 is none.
func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

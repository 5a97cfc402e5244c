package ports

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
)

// The memory of an RMA port: SPEC.md 4. It is sparse: what nobody touches costs nothing.
const (
	tableSize   = atu.PagesPerGAT * 8 // an entry of 8 bytes for each page
	arenaOff    = 2 << 20             // behind the locks
	memorySize  = arenaOff + atu.MaxRegion
	pageSize    = 4096
	flowHeader  = 4096
	flowHeadOff = 256 // of what the reader has consumed
	flowTailOff = 128 // of what the writer has written
)

// Slots of a flow, and the size of one.
const (
	veloSlots    = 128
	veloSlotSize = 128
	rmaSlots     = 4096
	rmaSlotSize  = 32
)

// slotsOf returns the number of slots of a unit's flows, and the size of one.
func slotsOf(u Unit) (n, size int) {
	if u == fabric.UnitRMA {
		return rmaSlots, rmaSlotSize
	}
	return veloSlots, veloSlotSize
}

// memory makes a memfd that nobody can resize.
func memory(name string, size int) (fd int, err error) {
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

// reopen returns another descriptor of a memfd or pipe, with a mode and flags of its own. Who is
// not the node's user cannot open the file anew.
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

// word reads a word that a process may have written; 0: it cannot be read.
func word(fd int, off int64) uint64 {
	var b [8]byte
	if n, err := unix.Pread(fd, b[:], off); n != len(b) || err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// used returns how many bytes of a port's memory are there.
func used(fd int) uint64 {
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

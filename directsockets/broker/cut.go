package broker

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
)

// maxMaps bounds how many mappings of a process are looked at.
const maxMaps = 1 << 17

// cutSegments finds the segments with these nonces among the mappings of a process, and tells both
// ends that the network is cut. It returns those whose ends both heed that.
func cutSegments(pid int, want map[wire.Nonce]bool) (heeded []wire.Nonce) {
	if len(want) == 0 {
		return nil
	}
	dev, err := memoryDevice()
	if err != nil {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	// 7f0000000000-7f0000001000 rw-s 00000000 00:01 1234    /memfd:exnet-ds (deleted)
	lines := bufio.NewScanner(f)
	for n := 0; n < maxMaps && len(heeded) < len(want) && lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[3] != dev || fields[1] != "rw-s" || fields[5] != "/memfd:exnet-ds" {
			continue
		}
		if nonce, heed := cutMapping(pid, fields[0], dev, want); heed {
			heeded = append(heeded, nonce)
		}
	}
	_ = lines.Err() // the process has ended: what it heeded before does not matter any more
	return heeded
}

// cutMapping does so with the file of one mapping. The process may have changed it since.
func cutMapping(pid int, at, dev string, want map[wire.Nonce]bool) (nonce wire.Nonce, heed bool) {
	// A path alone opens nothing of another file system, which might never answer.
	path, err := unix.Open(fmt.Sprintf("/proc/%d/map_files/%s", pid, at), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nonce, false
	}
	defer func() { _ = unix.Close(path) }()
	if is, err := deviceOf(path); err != nil || is != dev {
		return nonce, false
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nonce, false
	}
	defer func() { _ = unix.Close(fd) }()
	found, heed, err := segment.Cut(fd, func(nonce [16]byte) bool { return want[nonce] })
	return found, heed && err == nil
}

// memoryDevice is that of the file system of memfds, as /proc/PID/maps has it.
func memoryDevice() (string, error) {
	fd, err := unix.MemfdCreate("exnet-ds-device", unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return deviceOf(fd)
}

// deviceOf asks no file system for it.
func deviceOf(fd int) (string, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	return fmt.Sprintf("%02x:%02x", st.Dev_major, st.Dev_minor), err
}

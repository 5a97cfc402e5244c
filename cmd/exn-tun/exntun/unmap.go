package exntun

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settleTime is how long after it is up a node has done all that it does only once: greeted its
// peers, announced itself, handed the kernel its addresses.
const settleTime = 10 * time.Second

// unmapTwice calls unmap at once, and again after settleTime unless ctx ends before: what a node
// does in its first seconds brings most of its code back.
func unmapTwice(ctx context.Context, unmap func()) {
	unmap()
	select {
	case <-time.After(settleTime):
		unmap()
	case <-ctx.Done():
	}
}

// unmapCode takes the program's code and constants out of the process's memory; what is used
// again comes back from the page cache, a few pages at a time. Starting runs through nearly all
// of it (initialization of packages, flags, netstack), a node at rest through a third. After an
// error some or all of it stays in memory.
func unmapCode() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("unmapping code: %w", err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("unmapping code: %w", err)
	}
	defer maps.Close()
	for _, r := range constRanges(maps, exe) {
		if _, _, errno := unix.RawSyscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmapping code: madvise: %w", errno)
		}
	}
	return nil
}

type addressRange struct{ from, to uintptr }

// constRanges returns the read-only mappings of file in maps (proc_pid_maps(5)). Their pages
// are the file's own.
func constRanges(maps io.Reader, file string) (all []addressRange) {
	for s := bufio.NewScanner(maps); s.Scan(); {
		// from-to perms offset device inode path
		f := strings.Fields(s.Text())
		if len(f) != 6 || f[5] != file || !strings.HasPrefix(f[1], "r-") {
			continue
		}
		var r addressRange
		if _, err := fmt.Sscanf(f[0], "%x-%x", &r.from, &r.to); err == nil {
			all = append(all, r)
		}
	}
	return all
}

package exntun

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orphans adopts processes whose parents ended before them: until stopAdopting, this process
// becomes their parent.
type orphans struct {
	earlier  map[int]bool // children that were there before
	children func() []int
}

// adoptOrphans makes this process adopt the processes that its descendants leave behind. The
// caller must call stopAdopting.
func adoptOrphans() (*orphans, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("adopting orphaned processes: %w", err)
	}
	o := &orphans{earlier: make(map[int]bool), children: childProcesses}
	for _, pid := range o.children() {
		o.earlier[pid] = true
	}
	return o, nil
}

// stopAdopting lets orphans go to init again.
func (o *orphans) stopAdopting() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // cannot fail, having worked before
}

// endChildren ends all children that were not there before adoptOrphans, and their descendants,
// which this process adopts as their parents end. It returns how many were still running. The
// caller must have waited for those that it started itself.
func (o *orphans) endChildren() int {
	running := 0
	began := time.Now()
	asked := make(map[int]bool)
	for {
		left := 0
		for _, pid := range o.children() {
			if o.earlier[pid] {
				continue
			}
			left++ // when it ends, even if it has ended since it was listed, its own come to us
			if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil && got == pid {
				continue // it had ended
			}
			switch {
			case !asked[pid]:
				asked[pid] = true
				running++
				_ = unix.Kill(pid, unix.SIGTERM) // fails only when it has just ended
			case time.Since(began) > serverGrace:
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if left == 0 {
			return running
		}
		time.Sleep(time.Millisecond)
	}
}

// reapChildren waits for adopted children that have ended. own are children that the caller started
// and waits for itself.
func (o *orphans) reapChildren(own []int) {
	for _, pid := range o.children() {
		if !o.earlier[pid] && !slices.Contains(own, pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // one that runs is left alone
		}
	}
}

// childProcesses returns the processes whose parent is this one.
func childProcesses() []int {
	var pids []int
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	self := strconv.Itoa(os.Getpid())
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state ppid ...", and the name may have anything in it
		// (proc_pid_stat(5)).
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == self {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

package exntun

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// adopt is adoptOrphans for a test.
func adopt(t *testing.T) *orphans {
	t.Helper()
	o, err := adoptOrphans()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stopAdopting)
	return o
}

// TestOrphans: what a program leaves behind is ended, also what has a session
// of its own or does not want to end, and how many they were is told.
func TestOrphans(t *testing.T) {
	for _, c := range []struct {
		name, script string
		sleeps, want int // programs called sleep, and all
	}{
		{"none", "true", 0, 0},
		{"one", "sleep $0 &", 1, 1},
		{"of another session", "setsid sleep $0 & setsid sh -c 'sleep $0 & exec sleep $0' $0 &", 3, 3},
		{"that ignores SIGTERM", "(trap '' TERM; while :; do sleep $0; done) &", 1, 2},
		{"that has ended", "sleep 0.01 &", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t)
			o := adopt(t)
			arg := sleepArg()
			if err := exec.Command("/bin/sh", "-c", c.script, arg).Run(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "all run, but the short-lived one", func() bool {
				return withCommandLine(t, "sleep\x00"+arg+"\x00") == c.sleeps && (c.sleeps > 0 || !childRuns())
			})
			if n := o.endChildren(); n != c.want {
				t.Errorf("ended %d, want %d", n, c.want)
			}
			if alive(t, arg) {
				t.Error("one is still there")
			}
			if n := o.endChildren(); n != 0 {
				t.Errorf("the second time it ended %d", n)
			}
		})
	}
}

// TestOrphansOfLateEnd: a process that ends just when the list of children has been made leaves
// children that are not on it.
func TestOrphansOfLateEnd(t *testing.T) {
	leavesNothing(t)
	o := adopt(t)
	arg := sleepArg()
	if err := exec.Command("/bin/sh", "-c", "sh -c 'sleep $0 & exec sleep $0' $0 &", arg).Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both run", func() bool { return withCommandLine(t, "sleep\x00"+arg+"\x00") == 2 })
	o.children = func() []int {
		pids := childProcesses()
		for _, pid := range pids {
			if !o.earlier[pid] {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		eventually(t, "those listed have ended", func() bool {
			return !slices.ContainsFunc(pids, func(pid int) bool { return !o.earlier[pid] && runs(pid) })
		})
		return pids
	}
	o.endChildren()
	if alive(t, arg) {
		t.Error("one is still there")
		o.endChildren()
	}
}

// withCommandLine counts the processes with a command line.
func withCommandLine(t *testing.T, line string) (n int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if got, err := os.ReadFile(path); err == nil && string(got) == line {
			n++
		}
	}
	return n
}

// childRuns reports whether this process has a child that has not ended.
func childRuns() bool {
	return slices.ContainsFunc(childProcesses(), runs)
}

// runs reports whether a process has not ended.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestOrphansReap: of the orphans, those that have ended are collected; other
// children, and their exit statuses, are left to those who started them.
func TestOrphansReap(t *testing.T) {
	leavesNothing(t)
	before := exec.Command("true")
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	o := adopt(t)
	own := exec.Command("sh", "-c", "exit 3")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	arg := sleepArg()
	out, err := exec.Command("/bin/sh", "-c", "true & echo $!; sleep $0 >/dev/null 2>&1 &", arg).Output()
	if err != nil {
		t.Fatal(err)
	}
	gone, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan's end", func() bool {
		o.reapChildren([]int{own.Process.Pid})
		return unix.Kill(gone, 0) == unix.ESRCH
	})
	if !alive(t, arg) {
		t.Error("the orphan that runs is gone")
	}
	if err := before.Wait(); err != nil {
		t.Errorf("the process from before: %v", err)
	}
	if err := own.Wait(); own.ProcessState.ExitCode() != 3 {
		t.Errorf("its own: %v", err)
	}
	if n := o.endChildren(); n != 1 {
		t.Errorf("ended %d, want 1", n)
	}
}

// TestOrphansSparesOthers: processes that were there before stay.
func TestOrphansSparesOthers(t *testing.T) {
	before := exec.Command("sleep", "60")
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		before.Process.Kill()
		before.Wait()
	}()
	o := adopt(t)
	if n := o.endChildren(); n != 0 {
		t.Errorf("ended %d", n)
	}
	if err := before.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the process from before: %v", err)
	}
}

func TestChildren(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if !slices.Contains(childProcesses(), pid) {
		t.Errorf("%d is not among the children %v", pid, childProcesses())
	}
	cmd.Process.Kill()
	cmd.Wait()
	if slices.Contains(childProcesses(), pid) {
		t.Error("it is still there when it has ended")
	}
}

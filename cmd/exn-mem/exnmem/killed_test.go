package exnmem

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// calling is a program, and its child, that use far more memory than their share by a call of the
// kernel, without end.
const calling = `
import mmap, os, sys
how, ready = sys.argv[1:]
size, part = 32 << 20, 1 << 16
m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
fill = os.urandom(part)
for at in range(0, size, part): m[at:at+part] = fill
view = memoryview(m)
zero, to = os.open('/dev/zero', os.O_RDONLY), os.memfd_create('to')
if os.fork() == 0: ready += '.child'
with open(ready + '.new', 'w') as f: f.write(str(os.getpid()))
os.rename(ready + '.new', ready)
while True:
    for at in range(0, size, part):
        if how == 'madvise':
            m.madvise(mmap.MADV_DONTNEED, at, part)
            m[at:at+part] = fill
        elif how == 'read': os.preadv(zero, [view[at:at+part]], 0)
        else: os.pwrite(to, view[at:at+part], 0)
`

// A pager that is killed takes its program and its children with it, whatever call they are in,
// and while the library's thread waits for the pager, too. Each says so in a line.
func TestPagerKilled(t *testing.T) {
	needPaging(t)
	for _, how := range []string{"madvise", "read", "write"} {
		t.Run(how, func(t *testing.T) {
			ready := filepath.Join(t.TempDir(), "ready")
			cmd := exnMem(t, "run", "--local", "8M", "--remote", "256M", "--control", "--", "python3", "-c", calling, how, ready)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr // its copying ends when no process of the program has it any more
			cmd.WaitDelay = 2 * time.Minute
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var program []int
			for _, path := range []string{ready, ready + ".child"} {
				await(t, "the program", func() bool { return exists(path) })
				text, err := os.ReadFile(path)
				pid, err2 := strconv.Atoi(string(text))
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				program = append(program, pid)
			}
			stopWaited(t, cmd.Process.Pid, program[0])
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
				t.Error(err)
			}
			for _, pid := range program {
				t.Cleanup(func() {
					if len(agents(pid)) > 0 {
						_ = unix.Kill(pid, unix.SIGKILL)
					}
				})
				await(t, "the end of the program", func() bool { return len(agents(pid)) == 0 })
			}
			if n := strings.Count(stderr.String(), "exn-mem: the pager has ended"); n != 2 {
				t.Errorf("it is said %d times, by a program and its child\n%s", n, &stderr)
			}
		})
	}
}

// stopWaited stops the pager, if it can while the library's thread in the program waits for it in
// madvise.
func stopWaited(t *testing.T, pager, program int) {
	t.Helper()
	for range 300 {
		if err := unix.Kill(pager, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if agentIn(program, unix.SYS_MADVISE) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		if err := unix.Kill(pager, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Log("the library's thread was never found waiting")
}

// agents are the threads of the library in a program.
func agents(program int) (dirs []string) {
	all, _ := filepath.Glob("/proc/" + strconv.Itoa(program) + "/task/*/comm")
	for _, path := range all {
		if name, _ := os.ReadFile(path); string(name) == "exn-mem\n" {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirs
}

// agentIn says whether a thread of the library is in the call.
func agentIn(program, call int) bool {
	for _, dir := range agents(program) {
		text, _ := os.ReadFile(filepath.Join(dir, "syscall"))
		if number, _, _ := strings.Cut(string(text), " "); number == strconv.Itoa(call) {
			return true
		}
	}
	return false
}

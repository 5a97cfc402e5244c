package pager

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tellEnd says what is missing in the core of a process that has ended, and that it may have
// ended by its seccomp filter. The kernel writes the core when the process cannot wait for the
// pager any more, nor run anything of the library's: what is elsewhere is not in it.
func (g *Pager) tellEnd(p *process) {
	if p.mem == nil {
		return
	}
	status := exitStatus(p.pid, p.ref)
	if status.Signaled() && status.Signal() == unix.SIGSYS && p.adopted {
		g.noteFiltered(p)
	}
	if !status.CoreDump() {
		return
	}
	if n := p.pagesElsewhere(); n > 0 {
		g.say1(fmt.Sprintf("process %d has dumped core: %d KiB of its memory were elsewhere, and are not in it", p.pid, n*pageSize>>10))
	}
}

// noteFiltered says that a seccomp filter has ended a process.
func (g *Pager) noteFiltered(p *process) {
	g.sayOnce("filter", "process %d is killed: its seccomp filter kills whoever makes the calls that its memory needs (a filter for all threads has to allow ioctl, madvise, recvmsg, sendmsg and ppoll)", p.pid)
}

// deadTime is how long an agent that is dead may owe an answer. Then it has not ended with its
// process.
const deadTime = time.Second

// endFiltered kills a process whose agent has been killed alone, as a filter can do: nobody
// would answer, and its threads would wait for ever.
func (g *Pager) endFiltered(p *process) {
	var thread [4]byte
	if p.busy == 0 || time.Since(p.since) < deadTime {
		return
	}
	if n, _ := p.mem.ReadAt(thread[:], int64(p.hello.base)+threadAt); n != len(thread) || binary.NativeEndian.Uint32(thread[:]) != 0 {
		return
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/status")
	if err != nil || dying.Match(text) {
		return
	}
	g.noteFiltered(p)
	p.kill()
}

// dying matches the status of a process that ends: a zombie, or one that has SIGKILL.
var dying = regexp.MustCompile(`(?m)^State:\s+[ZX]|^SigPnd:\s+[0-9a-f]*[13579bdf][0-9a-f]{2}$`)

// exitStatus returns with which status a process has ended, of which ref is a descriptor; 0: it
// lives, or that is not known.
func exitStatus(pid, ref int) unix.WaitStatus {
	status, reaped := exitInfo(ref)
	if reaped {
		return unix.WaitStatus(status)
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // it has not been reaped, so that this is its ID
	if err != nil {
		status, _ = exitInfo(ref) // it has been meanwhile
		return unix.WaitStatus(status)
	}
	// The last field is the status: 0 while the process lives, as where it executes another
	// program.
	fields := bytes.Fields(text)
	status, _ = strconv.Atoi(string(fields[len(fields)-1])) // the kernel ends the line with a number
	return unix.WaitStatus(status)
}

// exitInfo returns the status of a process that its parent has waited for. It reports false of
// others, and always before Linux 6.15.
func exitInfo(ref int) (status int, reaped bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := unix.IoctlPidfdInfo(ref, &info)
	return int(info.Exit_code), err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

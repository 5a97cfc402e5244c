package pager

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// tellCore says what is missing in the core of a process that has ended. The kernel writes it when
// the process cannot wait for the pager any more, nor run anything of the library's: what is
// elsewhere is not in it.
func (g *Pager) tellCore(p *process) {
	if p.mem == nil || !dumpedCore(p.pid, p.ref) {
		return
	}
	if n := p.elsewhere(); n > 0 {
		g.say1(fmt.Sprintf("process %d has dumped core: %d KiB of its memory were elsewhere, and are not in it", p.pid, n*pageSize>>10))
	}
}

// coreFlag is set in the status of a process that has dumped core (wait(2)).
const coreFlag = 0x80

// dumpedCore says whether a process, of which ref is a descriptor, has ended with a core dump.
func dumpedCore(pid, ref int) bool {
	status, reaped := exitInfo(ref)
	if reaped {
		return status&coreFlag != 0
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // it has not been reaped, so that this is its ID
	if err != nil {
		status, _ = exitInfo(ref) // it has been meanwhile
		return status&coreFlag != 0
	}
	// The last field is the status: 0 while the process lives, as where it executes another
	// program.
	fields := bytes.Fields(text)
	status, _ = strconv.Atoi(string(fields[len(fields)-1])) // the kernel ends the line with a number
	return status&coreFlag != 0
}

// exitInfo returns the status of a process that its parent has waited for. It reports false of
// others, and always before Linux 6.15.
func exitInfo(ref int) (status int, reaped bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := unix.IoctlPidfdInfo(ref, &info)
	return int(info.Exit_code), err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

package result

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"exnet/internal/display"
	"exnet/internal/tcpbench"
	"exnet/internal/version"
)

// Machine is what a figure depends on besides its own settings.
type Machine struct {
	Commit string `json:"commit,omitempty"` // of this program; "+": with changes
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Date   string `json:"date"` // of the start, RFC 3339, UTC
}

func ThisMachine(now time.Time) Machine {
	return Machine{
		Commit: version.Commit(),
		CPU:    cpuModel(),
		CPUs:   len(tcpbench.AllowedCPUs()),
		Kernel: kernelRelease(),
		Go:     runtime.Version(),
		Date:   now.UTC().Format(time.RFC3339),
	}
}

func (m Machine) String() string {
	parts := []string{m.CPU, display.Count(m.CPUs, "CPU"), "Linux " + m.Kernel, m.Go}
	if m.Commit != "" {
		parts = append(parts, "commit "+m.Commit)
	}
	return strings.Join(append(parts, m.Date), ", ")
}

func cpuModel() string {
	proc, err := procfs.NewDefaultFS()
	if err == nil {
		if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
			return cpus[0].ModelName
		}
	}
	return "unknown CPU (" + runtime.GOARCH + ")"
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return unix.ByteSliceToString(u.Release[:])
}

// BusyTime returns how long this machine's CPUs have been busy since it began, all together, and
// how long others have had them (stolen), which is the case on a virtual machine.
func BusyTime() (busy, stolen time.Duration, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, err
	}
	stat, err := proc.Stat()
	t := stat.CPUTotal // the guests' times are part of User and Nice
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return seconds(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ), seconds(t.Steal), err
}

package result

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

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
	unknown := "unknown CPU (" + runtime.GOARCH + ")"
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return unix.ByteSliceToString(u.Release[:])
}

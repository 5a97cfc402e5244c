package tcpbench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AnyCPU leaves the choice of a CPU to the scheduler.
const AnyCPU = -1

// Placement says on which CPUs the two ends run.
type Placement struct {
	Client int `json:"client"` // that connects; AnyCPU: the scheduler's choice
	Server int `json:"server"` // that listens
}

// Anywhere leaves both ends to the scheduler.
func Anywhere() Placement { return Placement{Client: AnyCPU, Server: AnyCPU} }

// Apart puts the two ends on different CPUs, as those of two nodes are, the
// first and the last that this process may run on; if there is only one,
// Anywhere.
func Apart() Placement {
	cpus := AllowedCPUs()
	if len(cpus) < 2 {
		return Anywhere()
	}
	return Placement{Client: cpus[0], Server: cpus[len(cpus)-1]}
}

// Together puts both ends on one CPU, the last that this process may run on.
func Together() Placement {
	cpus := AllowedCPUs()
	if len(cpus) == 0 {
		return Anywhere()
	}
	last := cpus[len(cpus)-1]
	return Placement{Client: last, Server: last}
}

// String returns "CLIENT,SERVER", or "any" for Anywhere.
func (p Placement) String() string {
	if p == Anywhere() {
		return "any"
	}
	return fmt.Sprintf("%d,%d", p.Client, p.Server)
}

// AllowedCPUs lists the CPUs that this process may run on.
func AllowedCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

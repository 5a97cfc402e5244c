package result

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// BusyTime returns how long this machine's CPUs have been busy since it began, all together, and
// how long others have had them (stolen), which is the case on a virtual machine.
func BusyTime() (busy, stolen time.Duration, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return busyTime(first)
}

// busyTime reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal
// guest guest_nice. The guests' times are part of user's and nice's.
func busyTime(line string) (busy, stolen time.Duration, err error) {
	const idle, iowait, steal = 4, 5, 8
	words := strings.Fields(line)
	if len(words) <= steal || words[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i := 1; i <= steal; i++ {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks := time.Duration(n) * (time.Second / 100) // USER_HZ of all architectures that Go has
		switch i {
		case idle, iowait:
		case steal:
			stolen = ticks
		default:
			busy += ticks
		}
	}
	return busy, stolen, nil
}

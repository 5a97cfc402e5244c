package counter

import "time"

// WaitBounds are the upper bounds of the buckets of WaitTimes but the last.
var WaitBounds = [...]time.Duration{
	5 * time.Microsecond, 10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond,
	200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 100 * time.Millisecond,
}

// WaitTimes is how long packets waited between the host that sent them and the loop that has
// carried them: the first of each burst, as the kernel notes when it sent that (package tun). A
// packet that is sent while the loop looks at the notes, and those of a kernel without BPF, are
// not in it.
type WaitTimes struct {
	Counts [len(WaitBounds) + 1]uint64 `json:"counts"` // by WaitBounds; the last: longer
	Sum    time.Duration               `json:"sum_ns"`
}

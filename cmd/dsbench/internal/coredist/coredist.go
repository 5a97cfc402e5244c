package coredist

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

const (
	// HandOverSize is what is handed over: a large message.
	HandOverSize = 64 << 10

	// NearBound is the longest way of a cache line between CPUs that are near. Measured on the
	// project's machines: 0.02 to 0.06 us through a shared cache, 0.16 to 0.25 across. The
	// hand-over does not tell them apart: it took 0.7 to 4 us near, 3.8 to 10 far.
	NearBound = 120 * time.Nanosecond

	// Limit is how long the measurement of the distance takes at most.
	Limit = 200 * time.Millisecond
)

// How far the CPUs are from each other.
const (
	Near    = "near"    // they share a cache
	Far     = "far"     // they do not
	One     = "one"     // there is only one CPU
	Unknown = "unknown" // other work left no time to measure it
)

// Distance is how far two CPUs are from each other.
type Distance struct {
	Cores    string  `json:"cores"`                  // Near, Far, One or Unknown
	Line     float64 `json:"line_us,omitempty"`      // a cache line, one way, in microseconds
	HandOver float64 `json:"handover_us,omitempty"`  // a copy of 64 KB that the other CPU wrote
	Hot      float64 `json:"copy_64k_gbs,omitempty"` // a copy of 64 KB in the cache, in GB/s
	Cold     float64 `json:"copy_64m_gbs,omitempty"` // a copy of 64 MB
}

// String is for people, as in "near: cache line 0.06 us, 64 KB 1.9 us".
func (d Distance) String() string {
	return d.describe() + d.copies()
}

func (d Distance) describe() string {
	switch d.Cores {
	case One:
		return "only one CPU"
	case Unknown, "":
		return "distance not measured: other work is going on"
	}
	return fmt.Sprintf("%s: cache line %.2f us one way, 64 KB handed over in %.1f us", d.Cores, d.Line, d.HandOver)
}

func (d Distance) copies() string {
	if d.Hot == 0 {
		return "" // a result from before it was measured
	}
	return fmt.Sprintf("; 64 KB copied at %.0f GB/s, 64 MB at %.1f", d.Hot, d.Cold)
}

// classify says which distance it is.
func classify(line, handOver time.Duration) Distance {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	d := Distance{Cores: Far, Line: us(line), HandOver: us(handOver)}
	if line <= NearBound {
		d.Cores = Near
	}
	return d
}

// shared is what both threads use; each word has its lines to itself.
type shared struct {
	_    [128]byte
	ping atomic.Uint64
	_    [128]byte
	pong atomic.Uint64
	_    [128]byte
	stop atomic.Bool
	_    [128]byte
	data [HandOverSize]byte
}

const (
	batch     = 64 // round trips whose time is taken at once
	lines     = 64 // batches
	handOvers = 256
)

// Measure measures the distance of two CPUs, a equal to b being One, and how fast
// memory is copied.
func Measure(a, b int) Distance {
	d := Between(a, b)
	d.Hot, d.Cold = measureCopy()
	return d
}

// Between measures the distance of two CPUs, as Measure does, but not how fast memory is copied.
func Between(a, b int) Distance {
	if a == b {
		return Distance{Cores: One}
	}
	s := new(shared)
	timer := time.AfterFunc(Limit, func() { s.stop.Store(true) })
	defer timer.Stop()
	var line, handOver []time.Duration
	var wg sync.WaitGroup
	for i, f := range []func(){func() { line = s.write() }, func() { handOver = s.read() }} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			var set unix.CPUSet
			set.Set([]int{a, b}[i])
			if unix.SchedSetaffinity(0, &set) != nil {
				s.stop.Store(true)
			}
			f()
		}()
	}
	wg.Wait()
	if len(line) < lines/4 || len(handOver) < handOvers/4 {
		return Distance{Cores: Unknown}
	}
	slices.Sort(handOver)
	return classify(slices.Min(line)/(2*batch), handOver[len(handOver)/4])
}

// awaitValue waits until w is n; false: it is time to stop.
func (s *shared) awaitValue(w *atomic.Uint64, n uint64) bool {
	for spins := 1; w.Load() != n; spins++ {
		if spins%1024 == 0 && s.stop.Load() {
			return false
		}
	}
	return true
}

// write is the thread that begins; it returns the times of batches of round trips.
func (s *shared) write() (times []time.Duration) {
	n := uint64(0)
	for range lines {
		start := time.Now()
		for range batch {
			n++
			s.ping.Store(n)
			if !s.awaitValue(&s.pong, n) {
				return times
			}
		}
		times = append(times, time.Since(start))
	}
	from := make([]byte, HandOverSize)
	for range handOvers {
		n++
		from[0] = byte(n)
		copy(s.data[:], from)
		s.ping.Store(n)
		if !s.awaitValue(&s.pong, n) {
			return times
		}
	}
	return times
}

// read is the thread that answers; it returns the times of copies.
func (s *shared) read() (times []time.Duration) {
	n := uint64(0)
	for range lines * batch {
		n++
		if !s.awaitValue(&s.ping, n) {
			return nil
		}
		s.pong.Store(n)
	}
	to := make([]byte, HandOverSize)
	for range handOvers {
		n++
		if !s.awaitValue(&s.ping, n) {
			return times
		}
		start := time.Now()
		copy(to, s.data[:])
		times = append(times, time.Since(start))
		s.pong.Store(n)
	}
	return times
}

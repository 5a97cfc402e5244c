package killmatrix

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pulse notices when the machine stalls: a thread for each CPU sleeps, and looks how
// much longer than it wanted. It is the control of what is measured meanwhile.
type pulse struct {
	mu   sync.Mutex
	late time.Duration
}

const pulsePause = 10 * time.Millisecond

// newPulse begins, until the test ends.
func newPulse(t testing.TB) *pulse {
	t.Helper()
	p := new(pulse)
	stop := make(chan struct{})
	var done sync.WaitGroup
	for cpu := range runtime.NumCPU() {
		done.Go(func() {
			runtime.LockOSThread() // and the thread ends with its goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return // not one of ours
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := monotonic()
				time.Sleep(pulsePause)
				p.note(time.Duration(monotonic()-began) - pulsePause)
			}
		})
	}
	t.Cleanup(func() {
		close(stop)
		done.Wait()
	})
	return p
}

func (p *pulse) note(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = max(p.late, late)
}

func (p *pulse) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = 0
}

// worst is the longest time that a CPU stalled since reset.
func (p *pulse) worst() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

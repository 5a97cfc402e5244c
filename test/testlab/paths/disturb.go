package paths

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// A disturbance follows the one before after so long.
const (
	leastQuiet = 100 * time.Millisecond
	mostQuiet  = 3 * time.Second
)

// disturb disturbs the nodes, if Options say so, until the function that it returns is called.
func (l *lab) disturb(r *Row) (stop func()) {
	if !l.o.Disturb || !l.place.nodes {
		return func() {}
	}
	resumed := l.counter("relay.resumed")
	rnd := rand.New(rand.NewPCG(l.o.Seed, uint64(l.rows)))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rnd.Int64N(int64(most-least)))
	}
	over := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(between(leastQuiet, mostQuiet)):
			}
			var err error
			if l.place.hosts {
				err = l.cut()
			} else {
				err = l.stop(rnd.IntN(2), between(20*time.Millisecond, time.Second))
			}
			if err != nil {
				l.t.Error(err)
				return
			}
			r.Disturbed++
		}
	})
	return func() {
		close(over)
		done.Wait()
		r.Resumed = l.counter("relay.resumed") - resumed
	}
}

// cut ends the TCP connections between the nodes, which are to connect again.
func (l *lab) cut() error {
	for _, end := range []string{"sport", "dport"} {
		cmd := exec.Command("ss", "-K", "-t", end, "=", ":4791")
		if err := l.spaces[0].Start(cmd); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%v: %w", cmd, err)
		}
	}
	return nil
}

// stop stops a node for a while.
func (l *lab) stop(node int, d time.Duration) error {
	p := l.nodes[node]
	err := p.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	return errors.Join(err, p.Signal(syscall.SIGCONT))
}

package paths

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"exnet/test/testlab"
	"exnet/test/testlab/testnode"
)

// A disturbance follows the one before after so long, and leaves a node that was stopped as much
// time to run: in a machine that hardly ever runs TCP itself gives up connections that it opens (it
// repeats a SYN and its answer for 63 s), which says nothing of the nodes.
const (
	leastQuiet = 100 * time.Millisecond
	mostQuiet  = 3 * time.Second
	// leastStop is for how long a node is stopped at least.
	leastStop = 20 * time.Millisecond
)

// disturbNodes disturbs the nodes, if Options say so, until stop is called.
func (l *lab) disturbNodes(r *Row) (stop func()) {
	if !l.o.Disturb || !l.place.nodes {
		return func() {}
	}
	resumed := l.sumCounter("relay.resumed")
	timeouts := l.countTimeouts()
	rnd := rand.New(rand.NewPCG(l.o.Seed, uint64(l.rows)))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rnd.Int64N(int64(most-least)))
	}
	over := make(chan struct{})
	var done sync.WaitGroup
	var looks, away int
	if l.place.hosts {
		done.Go(func() { looks, away = l.watchLink(over) })
	}
	done.Go(func() {
		var stopped time.Duration
		for {
			select {
			case <-over:
				return
			case <-time.After(max(between(leastQuiet, mostQuiet), stopped)):
			}
			var err error
			if stopped = 0; l.place.hosts && (l.o.Stop == 0 || rnd.IntN(2) == 0) {
				err = l.cutLinks()
			} else {
				stopped = between(leastStop, cmp.Or(l.o.Stop, time.Second))
				err = l.stopNode(rnd.IntN(2), stopped)
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
		r.Resumed += l.sumCounter("relay.resumed") - resumed
		r.Away = float64(away) / max(1, float64(looks))
		r.Slow += int(l.slow.Swap(0))
		r.Timeouts += l.countTimeouts() - timeouts
	}
}

// watchLink looks at the nodes' link until over is closed. It returns how often, and how often
// there was none.
func (l *lab) watchLink(over <-chan struct{}) (looks, away int) {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return looks, away
		case <-tick.C:
		}
		looks++
		for i, dir := range l.dirs {
			if s, err := testnode.Status(dir, 1+i); err == nil && testnode.Linked(s) == 0 {
				away++
				break
			}
		}
	}
}

// lookPause is how often watchLink looks.
const lookPause = 50 * time.Millisecond

// noteStall shows what a program says of a connection that makes no progress, and what the kernels
// and the nodes at both ends know of it: an end whose program has closed it is there only.
func (l *lab) noteStall(_ *testlab.Process, line string) {
	var conn, port int
	var side string
	if n, _ := fmt.Sscanf(strings.ReplaceAll(line, ",", " "), "note connection %d %s port %d", &conn, &side, &port); n != 3 {
		return
	}
	if l.slow.Add(1) > maxNotes {
		return
	}
	l.t.Log(line)
	for i, ns := range l.spaces {
		cmd := exec.Command("ss", "-tinoeHO", fmt.Sprintf("( sport = :%d or dport = :%d )", port, port))
		var out strings.Builder
		cmd.Stdout = &out
		if err := ns.Start(cmd); err == nil {
			_ = cmd.Wait() // what it says is shown
		}
		l.t.Logf("host %d: %s; %s", 1+i, l.relayState(i, port), strings.TrimSpace(out.String()))
	}
}

// maxNotes bounds the connections without progress that are shown in a row.
const maxNotes = 10

// relayState says what a node knows of the connection whose client has a port.
func (l *lab) relayState(i, port int) string {
	s, err := testnode.Sockets(l.dirs[i], 1+i)
	if err != nil {
		return err.Error()
	}
	for _, r := range s.Relayed {
		if int(r.Local.Port()) == port || int(r.Remote.Port()) == port {
			return fmt.Sprintf("relay: %s, waits for %q, gate %s, %d held, dropped: %d held, %d early", r.State, r.Waits, r.Gate, r.Held, r.HeldDropped, r.EarlyDropped)
		}
	}
	return "not relayed"
}

// cutLinks ends the TCP connections between the nodes, which are to connect again.
func (l *lab) cutLinks() error {
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

// stopNode stops a node for a while.
func (l *lab) stopNode(node int, d time.Duration) error {
	p := l.nodes[node]
	err := p.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	return errors.Join(err, p.Signal(syscall.SIGCONT))
}

// countTimeouts is how often TCP of both hosts sent something again because nobody had acknowledged
// it in time.
func (l *lab) countTimeouts() (sum uint64) {
	for _, ns := range l.spaces {
		if err := ns.Do(func() error {
			text, err := os.ReadFile("/proc/thread-self/net/netstat")
			var names []string
			for line := range strings.Lines(string(text)) {
				fields := strings.Fields(line)
				if len(fields) == 0 || fields[0] != "TcpExt:" {
					continue
				}
				if i := slices.Index(names, "TCPTimeouts"); i >= 0 && i < len(fields) {
					n, err := strconv.ParseUint(fields[i], 10, 64)
					sum += n
					return err
				}
				names = fields
			}
			return err
		}); err != nil {
			l.t.Error(err)
		}
	}
	return sum
}

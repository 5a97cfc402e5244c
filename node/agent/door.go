package agent

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"exnet/directsockets/broker"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// Limits of the door, for each time between two looks at /proc. Who is not heard is found by the
// next look.
const (
	// maxKnocks is how many are heard; others wait in the kernel, which turns away the rest.
	maxKnocks = 1024
	// maxStrangers is how many are read, of one account, whose namespace has no broker. What it
	// took to read that account lately (search.spent) has to be less than strangersTime, and what
	// it takes for all since the last look less than strangersAll.
	maxStrangers  = 16
	strangersTime = 2 * searchTime
	strangersAll  = 10 * searchTime
	// knockPause is how long the door waits when no connection can be accepted.
	knockPause = 100 * time.Millisecond
)

// door is where programs that start say so.
type door struct {
	socket *broker.Door
	pids   chan int // of those who have connected
	stop   context.CancelFunc
	work   sync.WaitGroup

	// These belong to the agent's goroutine.
	callsLeft int            // how many more are heard until the next look
	strangers map[string]int // how many were read since the last look, by account
	reading   time.Duration  // how long that took
}

// openDoor opens it. A connection says all that there is to say, and is closed at once: whatever
// the program does with its end costs nothing here. nil: there is none; looks at /proc find all.
func (a *agent) openDoor() *door {
	if a.doorPath == "" {
		return nil
	}
	socket, err := broker.OpenDoor(a.doorPath)
	if err != nil {
		a.log.Warn("direct sockets: programs that start are not heard", "reason", err)
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &door{socket: socket, pids: make(chan int), stop: stop}
	d.resetBudget()
	failed := func(err error) { a.log.Warn("direct sockets: programs that start are not heard", "reason", err) }
	d.work.Go(func() {
		for conn := range rpc.Accept(ctx, socket.Listener(), knockPause, failed) {
			pid, err := caller.PIDOf(conn)
			conn.Close()
			if err != nil || pid <= 0 {
				continue // it is not to be seen from this PID namespace
			}
			select {
			case d.pids <- pid:
			case <-ctx.Done():
				return
			}
		}
	})
	return d
}

// resetBudget begins a new time between two looks.
func (d *door) resetBudget() {
	if d != nil {
		d.callsLeft, d.strangers, d.reading = maxKnocks, make(map[string]int), 0
	}
}

// heardKnocks are the processes that have connected; nil: none is heard now.
func (d *door) heardKnocks() <-chan int {
	if d == nil || d.callsLeft == 0 {
		return nil
	}
	return d.pids
}

func (d *door) close() error {
	if d == nil {
		return nil
	}
	d.stop()
	err := d.socket.Close()
	d.work.Wait()
	return err
}

// serveCaller serves the namespace of a process that has connected to the door, if that asks for
// it. What it is may have changed since it connected, so it is looked at like any other.
func (a *agent) serveCaller(pid int, now time.Time) {
	a.door.callsLeft--
	inode, ok := namespaceOf(filepath.Join(a.proc, strconv.Itoa(pid), "ns/net"))
	if !ok || a.places[inode] != nil || !a.told[inode].IsZero() {
		return
	}
	account := a.search.accountAt(pid, inode)
	if a.door.strangers[account]++; a.door.strangers[account] > maxStrangers || a.search.spent[account] > strangersTime || a.door.reading > strangersAll {
		return
	}
	begin := time.Now()
	asks := a.search.readNewcomer(pid, inode, now)
	a.door.reading += time.Since(begin)
	if asks {
		a.serveAsker(inode, pid, now)
	}
}

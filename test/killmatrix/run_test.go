package killmatrix

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/node/control"
)

const (
	// soon is within which a kill has to be seen, and a deadline met, and for which
	// nothing unrelated may stall.
	soon = time.Second
	// callLimit is the deadline of each call.
	callLimit = 250 * time.Millisecond
)

// slowError says that something took longer than soon. On a machine with other work that
// may be chance, so the cell is tried again.
type slowError struct{ error }

// result is a line of the table.
type result struct {
	cell  cell
	proof string        // of the moment
	saw   string        // what was left of the connection's two ends
	after time.Duration // how long after the signal it saw that; 0: it does not apply
	gap   time.Duration // longest time without a byte of bystanders that nothing should stop
	gapOf string        // which
	again time.Duration // until a new connection was served (again)
}

// run is one cell being run.
type run struct {
	w    *world
	cell cell
	conn connection
	// spare is a second one, to be made while the victim is down.
	spare connection
	held  map[string]bool // segments of the connection
	wrote int64           // bytes that the client's writes had taken before
	at    int64           // when the signal was sent, CLOCK_MONOTONIC
	slow  error           // slowError: it was right, and too late
	// slack is how many times as long as on a quiet machine things may take.
	slack time.Duration
	result
}

// within notes that something took longer than it may. Time that the machine stalled
// is not counted.
func (r *run) within(took, limit time.Duration, format string, args ...any) {
	if still := r.w.pulse.worst(); took > r.slack*limit+2*still {
		r.slow = slowError{fmt.Errorf("%s took %v (the machine stalled for %v)", fmt.Sprintf(format, args...), took, still)}
	}
}

// runCell runs a cell, in which all may take slack times as long as on a quiet machine. The
// world is as before then, unless there is an error.
func runCell(w *world, c cell, slack time.Duration) (result, error) {
	r := &run{w: w, cell: c, slack: slack, result: result{cell: c}}
	r.conn, r.spare = w.connection(), w.connection()
	if c.moment == returning || c.moment == passed {
		r.conn.buffer = 32 << 10
	}
	if c.outcome() != ends && c.outcome() != cut {
		r.conn.limit = int(callLimit.Milliseconds())
	}
	var err error
	if r.proof, err = r.reach(); err != nil {
		return r.result, fmt.Errorf("getting there: %w", err)
	}
	if r.held, err = segments(w.client.PID()); err != nil {
		return r.result, err
	}
	other, err := segments(w.server.PID())
	if err != nil {
		return r.result, err
	}
	for i := range r.held {
		if !w.path.relay && !other[i] && c.moment != setUp {
			delete(r.held, i)
		}
	}
	if w.path.relay { // each has one with its node
		maps.Copy(r.held, other)
	}
	if w.path.direct && len(r.held) == 0 && c.moment != setUp && c.moment != passed {
		return r.result, errors.New("the two ends have no segment in common")
	}
	if err := w.reset(); err != nil {
		return r.result, err
	}
	for _, p := range []*remote{r.conn.client, r.conn.server} {
		if p == r.conn.server && !r.conn.accepted {
			continue
		}
		s, err := p.stat(r.conn.id(p), true)
		if err != nil {
			return r.result, err
		}
		if p == r.conn.client {
			r.wrote = s.TX.Bytes
		}
	}
	w.pulse.reset()
	if err := r.hit(); err != nil {
		return r.result, err
	}
	switch c.outcome() {
	case ends:
		err = r.seeEnd()
	case waits:
		err = r.seeWait()
	case cut:
		err = r.seeCut()
	default:
		if err = r.wake(); err == nil {
			err = r.seeNothing()
		}
	}
	if err != nil {
		return r.result, err
	}
	if c.victim != server || c.signal == syscall.SIGSTOP {
		if _, err := r.spare.server.ask(request{Op: "unlisten", ID: r.spare.lid}); err != nil {
			return r.result, err
		}
	}
	if err := r.freed(); err != nil {
		return r.result, err
	}
	return r.result, r.slow
}

// hit sends the signal, and waits until it has done its work.
func (r *run) hit() error {
	pid := r.victimPID()
	r.at = monotonic()
	if err := unix.Kill(pid, r.cell.signal); err != nil {
		return err
	}
	if r.cell.signal == syscall.SIGSTOP {
		return wait("a stopped process", func() (bool, error) { return processState(pid) == 'T', nil })
	}
	switch r.cell.victim {
	case client:
		<-r.w.client.Done
	case server:
		<-r.w.server.Done
	case clientDaemon, serverDaemon:
		<-r.w.daemons[r.victimNode()].Done
	default:
		return wait("the end of the broker", func() (bool, error) { return gone(pid), nil })
	}
	return nil
}

func (r *run) victimPID() int {
	switch r.cell.victim {
	case client:
		return r.w.client.PID()
	case server:
		return r.w.server.PID()
	case clientDaemon, serverDaemon:
		return r.w.daemons[r.victimNode()].PID()
	}
	return r.w.pid
}

// survivor is the end that is left when a program is the victim.
func (r *run) survivor() *remote {
	if r.cell.victim == client {
		return r.conn.server
	}
	return r.conn.client
}

// wake has the server do what it was not to do before the moment, unless it is the victim.
func (r *run) wake() error {
	c := &r.conn
	if r.cell.victim == server {
		return nil
	}
	switch r.cell.moment {
	case setUp:
		if !c.accepted {
			if err := c.accept(); err != nil {
				return err
			}
		}
		return errors.Join(c.read(c.server, false), c.write(c.server, 64, time.Millisecond))
	}
	if r.cell.moment.full() {
		return c.read(c.server, false)
	}
	return nil
}

// victimNode is the index of the node whose daemon is the victim; -1: of none.
func (r *run) victimNode() int {
	switch r.cell.victim {
	case clientDaemon:
		return 0
	case serverDaemon:
		return 1
	}
	return -1
}

// revive has the victim go on, or starts it again, until a new connection is served.
func (r *run) revive() error {
	w := r.w
	began := time.Now()
	if r.cell.signal == syscall.SIGSTOP {
		if err := unix.Kill(r.victimPID(), syscall.SIGCONT); err != nil {
			return err
		}
	} else if err := r.startAgain(); err != nil {
		return fmt.Errorf("starting the %v again: %w", r.cell.victim, err)
	}
	for _, b := range w.beside {
		if err := w.moves(b); err != nil {
			return err
		}
	}
	if _, err := w.serve(); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	r.again = time.Since(began)
	return nil
}

func (r *run) startAgain() error {
	w := r.w
	switch r.cell.victim {
	case client:
		w.client.Kill()
		w.client = nil
		return w.startPeers()
	case server:
		w.server.Kill()
		w.server = nil
		return w.startPeers()
	case embeddedBroker:
		if w.broker != nil {
			w.broker.Kill()
		}
		return w.startBroker()
	}
	i := r.victimNode()
	if has, err := hasInterface(w.spaces[i], ifname); err != nil || has {
		return fmt.Errorf("%s of the killed daemon is still there: %v", ifname, err)
	}
	w.daemons[i].Kill()
	if err := w.startDaemon(i); err != nil {
		return err
	}
	return w.linked()
}

// freed checks that nothing is left of the connection.
func (r *run) freed() error {
	if err := wait("memory", func() (bool, error) { return heldSegments(r.held, r.w.pids()) == nil, nil }); err != nil {
		return fmt.Errorf("%w: %w", err, heldSegments(r.held, r.w.pids()))
	}
	ports := [2]uint16{r.conn.caddr.Port(), r.conn.saddr.Port()}
	for _, ns := range r.w.spaces {
		var left tcpSocket
		if err := wait("sockets", func() (bool, error) {
			all, err := tcpSockets(ns)
			for _, s := range all {
				mine := s.local == ports[0] && s.remote == ports[1] || s.local == ports[1] && s.remote == ports[0]
				if mine && s.state != timeWait && (s.state != finWait2 || s.inode != "0") {
					left = s
					return false, err
				}
			}
			return true, err
		}); err != nil {
			return fmt.Errorf("%w: %+v", err, left)
		}
	}
	return r.w.settle()
}

// counter is one of a daemon's.
func counter(s *control.Status, name string) uint64 {
	for _, c := range s.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

// processState is the state of a process (proc_pid_stat(5)); 0: there is none.
func processState(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	if rest == "" {
		return 0
	}
	return rest[0]
}

// gone reports whether a process has ended. It may stay as a zombie: its parent is the first
// process of the PID namespace, which in a container may be a program that waits for nobody.
func gone(pid int) bool {
	s := processState(pid)
	return s == 0 || s == 'Z'
}
